"""`verify` after a backfill that has left out rows: those that it has left out are not missing."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import validated
from connector.config.backfill_rules import BackfillRules
from connector.core.timestamps import SECOND
from connector.proof.verify.comparison import Comparison
from connector.proof.verify.filters import filters_of
from connector.proof.verify.report import VerifyReport
from connector.proof.verify.rows import RowDifference, RowKind
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import backfills, record, spool_of, write_progress
from connector.spool.reading import Spool
from tests.connector.proof.verify.delivering import delivered
from tests.connector.spool.backfill.builders import T, recorded, schema, spool_with_start
from tests.integration.commands import run
from tests.integration.servers import MakeDatabase


def test_rows_are_filtered_by_all_conditions_of_a_table_unless_a_backfill_has_read_it_without_one(
    tmp_path: Path,
) -> None:
    spool, header = spool_with_start(tmp_path)
    for number, where in enumerate(({"A": "x < 2", "B": "y"}, {"A": "x > 3"})):
        record(
            spool,
            header,
            [schema("A"), schema("B")],
            timestamp=lambda: T,
            after=number,
            why="command",
            dialect="googlesql",
            now=T,
            conditions=where,
        )
    tables, rules = ["A", "B", "C", "D"], BackfillRules(exclude=("C", "B"))
    assert filters_of(backfills(spool), tables, rules) == {"A": ("x < 2", "x > 3"), "C": ()}
    recorded(spool, header, "A")
    assert filters_of(backfills(spool), tables, None) == {}


def test_conditions_of_a_backfill_that_another_continues_are_those_of_the_tables_that_are_done(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B", where={"B": "y"})
    states = (TableProgress(table="A", state="reading"), TableProgress(table="B", state="done"))
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=states))
    recorded(spool, header, "A", continues=1, where={"A": "x"})
    assert filters_of(backfills(spool), ["A", "B"], None) == {"A": ("x",), "B": ("y",)}


def test_rows_that_differ_are_reported_although_their_hashed_key_cannot_be_looked_up() -> None:
    source = validated(
        {
            "source": {
                "project": "p",
                "instance": "in",
                "database": "d",
                "change_stream": "S",
                "columns": {"hash": {"A.Id": {"salt": "0123456789abcdef"}}},
            }
        }
    ).source
    comparison: Any = SimpleNamespace(
        _replica=SimpleNamespace(keeps_history=False, names_changes=False),
        _tables={"A": schema("A")},
        _looked_up=0,
        report=VerifyReport("there", T, ("A",)),
    )
    found = [RowDifference(RowKind.DIFFERENT, "A", ("Name",), '["digest"]')]
    row: dict[tuple[str, str], dict[str, object]] = {("A", '["digest"]'): {"Id": "digest", "Name": "a"}}
    assert Comparison._changed_since(comparison, source, found, row, row, T) == set()
    assert comparison.report.unsure == 1
    assert "their key is hashed" in comparison.report.to_text(show_keys=False)


@pytest.mark.emulator
def test_rows_that_a_condition_omits_are_missing_only_if_they_satisfy_it(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect="postgresql")
    for rows in ([*((number, "before") for number in range(1, 5)), (5, None)], [(3, "after"), (6, "after")]):
        with sample.database.batch() as batch:
            batch.insert_or_update("Singers", ("SingerId", "FirstName"), rows)
    at = int(batch.committed.timestamp() * 1_000_000) * 1000
    config = delivered(tmp_path, sample, at, at + SECOND // 1000)
    spool = Spool.at(tmp_path / "spool")
    manifest = spool.manifest(spool.latest())
    singers = spool.schema(manifest.schema_keys["Singers"])
    document = record(
        spool,
        spool.header(),
        [singers],
        timestamp=lambda: at // 1000 * 1000,
        why="command",
        dialect=sample.dialect,
        now=time.time_ns(),
        conditions={"Singers": '"FirstName" = \'after\' OR "SingerId" = 2'},
    )
    done = (TableProgress(table="Singers", state="done"),)
    write_progress(spool_of(spool, document.number), BackfillProgress(updated=time.time_ns(), tables=done))
    report = json.loads(run("verify", config, "--json", "--show-keys").out)
    assert [(row["kind"], row["key"]) for row in report["first_rows"]] == [("missing", "[2]")]
    (table,) = (one for one in report["tables"] if one["table"] == "Singers")
    assert (table["rows"], table["destination_rows"], table["omitted_by_backfill"]) == (6, 2, 3)
    assert "source.backfill omits them" in " ".join(report["notes"])
