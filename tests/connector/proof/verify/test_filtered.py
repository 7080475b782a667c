"""`verify` after a backfill that has left out rows: those that it has left out are not missing."""

import json
import time
from pathlib import Path

import pytest

from connector.config.backfill_rules import BackfillRules
from connector.core.timestamps import SECOND
from connector.proof.verify.filters import filters_of
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
