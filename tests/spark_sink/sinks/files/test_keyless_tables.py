"""A table with ``PRIMARY KEY()`` in the sinks, without Spark: its row arrives, and so do those of other tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from connector.core.records import ColumnType, Mod
from connector.core.timestamps import SECOND
from spark_sink.sources.files.files import read_file
from tests.spark_sink.sinks.files.written import written_as
from tests.spark_sink.spools import START, SpoolMaker, record

V = ColumnType("V", '{"code":"STRING"}', False, 1)


@pytest.fixture
def mixed(spool: SpoolMaker) -> SpoolMaker:
    """One row of the table without a key, which is inserted, changed and deleted, and one of another."""
    changes = []
    for at, (kind, mod) in enumerate(
        (
            ("INSERT", Mod("{}", '{"V":"a"}', "{}")),
            ("UPDATE", Mod("{}", '{"V":"b"}', '{"V":"a"}')),
            ("DELETE", Mod("null", "null", '{"V":"b"}')),
        )
    ):
        one = record(START + (at + 1) * SECOND, table="Keyless", columns=(V,), mod_type=kind)
        changes.append(replace(one, mods=(mod,)))
    spool.seal(*changes, record(START + 5 * SECOND, [7]))
    return spool


@pytest.mark.parametrize("form", ["jsonl", "avro"])
def test_files_have_each_change_of_it(mixed: SpoolMaker, tmp_path: Path, form: str) -> None:
    rows = [row for file in written_as(mixed, tmp_path, form) for batch in read_file(file) for row in batch.to_pylist()]
    found = [(row["object"], row["source_metadata"]["change_type"], json.loads(row["payload"])) for row in rows]
    assert sorted(found, key=str) == sorted(
        [
            ("Keyless", "INSERT", {"V": "a"}),
            ("Keyless", "UPDATE", {"V": "b"}),
            ("Keyless", "DELETE", {"V": "b"}),
            ("Singers", "INSERT", {"Id": 7, "Name": "n"}),
        ],
        key=str,
    )
    assert {tuple(row["source_metadata"]["primary_keys"]) for row in rows if row["object"] == "Keyless"} == {()}
