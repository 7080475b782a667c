"""Tables are read whole in every placement: where the stream is of some, each needs a condition of its rows."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.check.backfilled_tables import conditions_of
from connector.check.conditions import errors_of_conditions
from connector.check.needs import NEEDS
from connector.config.backfill_rules import BackfillRules
from connector.core.dialects import GOOGLESQL
from connector.core.schemas import TableSchema
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.due_backfills import due_at_start, due_by_command
from connector.errors import ConfigurationError, UnreachableError
from connector.proof.verify.command import VerifiedStream, VerifyOptions, verify
from connector.proof.verify.comparison import Comparison
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import backfills, spool_of, write_progress
from tests.connector.daemon.recorders import recorder, stream
from tests.connector.spool.backfill.builders import T, recorded, schema
from tests.integration.commands import run

REFUSED = r"source\.placements: rows of B would be read in every placement: set source\.backfill\.where for each"
ANY_CONFIG: Any = SimpleNamespace()
PLACED: dict[str, object] = {"placements": ("europe",), "backfill": BackfillRules(where={"A": "Place = 'europe'"})}


@pytest.mark.parametrize(
    "begun",
    [
        due_at_start,
        lambda one: due_by_command(one, ANY_CONFIG, ("B",), (), is_first=True),
        lambda one: one.first([schema("B")], after=1, why="command"),  # of new tables
    ],
    ids=["start", "command", "new table"],
)
def test_no_backfill_begins_of_a_table_without_a_condition(
    tmp_path: Path, begun: Callable[[BackfillRecorder], object]
) -> None:
    one = recorder(tmp_path, stream(**PLACED))
    with pytest.raises(ConfigurationError, match=REFUSED):
        begun(one)
    assert backfills(one.spool) == []


def test_a_backfill_that_was_recorded_without_a_condition_does_not_continue_until_it_is_read(tmp_path: Path) -> None:
    one = recorder(tmp_path, stream(placements=("europe",)))
    document = recorded(one.spool, one.header, "A", "B", where={"A": "Place = 'europe'"})
    with pytest.raises(ConfigurationError, match=REFUSED):
        one.continued(*backfills(one.spool))
    read = tuple(TableProgress(table=name, state="read") for name in ("A", "B"))
    write_progress(spool_of(one.spool, document.number), BackfillProgress(updated=T, tables=read))
    assert one.continued(*backfills(one.spool)).number == document.number


def test_check_names_the_tables_that_would_be_read_in_every_placement() -> None:
    where = BackfillRules(exclude=("A",))
    (line,) = errors_of_conditions(stream(placements=("europe",), backfill=where))
    assert line.startswith("source.placements: rows of B would be read in every placement")
    assert errors_of_conditions(stream(placements=("europe",))) == []
    assert errors_of_conditions(stream(backfill=BackfillRules())) == []
    for command, needs in NEEDS.items():
        found = errors_of_conditions(stream(placements=("europe",)), reads_tables=needs.tables, compares=needs.compares)
        assert bool(found) == (command in ("backfill", "verify"))


def test_check_names_the_tables_that_verify_reads_also_those_that_backfills_exclude() -> None:
    keyless = TableSchema.of("Keyless", schema("A").columns[1:])
    where = BackfillRules(exclude=("B",))
    opened = stream(placements=("europe",), backfill=where)
    opened = replace(opened, stream=replace(opened.stream, tables=(*opened.stream.tables, keyless)))
    (line,) = errors_of_conditions(opened, reads_tables=True)
    assert "rows of A, Keyless would be read" in line
    (line,) = errors_of_conditions(opened, reads_tables=True, compares=True)
    assert "rows of A, B would be read" in line


def test_check_names_each_fault_of_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    def partitions(_: object, query: TableQuery, __: object) -> None:
        raise UnreachableError(f"no column of {query.table}")

    snapshot = SimpleNamespace(partitions=partial(partitions, None))
    monkeypatch.setattr(Snapshot, "open", lambda *_: nullcontext(snapshot))
    where = {"A": "Nothing > 1", "Typo": "TRUE"}
    found = errors_of_conditions(stream(placements=("europe",), backfill=BackfillRules(where=where)))
    assert [re.sub(":.*", "", line) for line in found] == [
        "source.backfill.where.Typo",
        "source.placements",
        "source.backfill.where.A",
    ]


def test_a_condition_may_be_of_a_table_to_come_where_no_table_is_read_without_one() -> None:
    rules = BackfillRules(where={"A": "Place = 'europe'", "Later": "TRUE"}, new_tables=True)
    assert conditions_of(stream(placements=("europe",), backfill=rules)) == {"A": "Place = 'europe'"}
    with pytest.raises(ConfigurationError, match=r"source\.backfill\.where\.Later"):
        conditions_of(stream(backfill=rules))


def test_verify_reads_no_table_without_a_condition() -> None:
    config: Any = SimpleNamespace(sink=SimpleNamespace(type="files"), source=stream(**PLACED).config)
    verified = VerifiedStream(GOOGLESQL, (schema("A"), schema("B")), T, captures_whole_rows=True)
    with pytest.raises(ConfigurationError, match=REFUSED):
        verify(config, verified, VerifyOptions())


def test_verify_reads_the_rows_that_satisfy_the_condition_whatever_backfills_have_delivered() -> None:
    read = []

    def payloads(_: object, condition: str) -> list[object]:
        read.append(condition)
        return []

    comparison: Any = SimpleNamespace(_filters={"B": ("x < 2",)}, _bounds={"A": "here", "B": "here"})
    source: Any = SimpleNamespace(payloads=payloads)
    for table in ("A", "B", "C"):
        assert list(Comparison._source_rows(comparison, source, schema(table))) == []
    assert read == ["(here)", "(here) AND ((x < 2))", "(here) AND (NOT COALESCE((x < 2), FALSE))", ""]


def test_a_repair_is_refused_for_it_reads_rows_by_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "source: {project: p, instance: in, database: d, change_stream: S, placements: [europe]}\nspool: {path: s}\n"
    )
    done = run("verify", path, "--repair")
    assert done.code == 2
    assert "--repair: it reads rows by their keys, in every placement" in done.complaint
