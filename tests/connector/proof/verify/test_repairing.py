"""The rows of a repair: what Spanner has is sent as it is, what it never had is deleted, and nothing else."""

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from connector.config import Config, SourceConfig, validated
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.daemon.repair import _check_stopped, finish_earlier, repair
from connector.errors import ConfigurationError, SpoolError
from connector.proof.verify.differing_keys import DifferingKeys, key_text
from connector.proof.verify.repairing import RepairFiller, StoppedError
from connector.proof.verify.report import RepairReport
from connector.proof.verify.rows import RowKind
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import backfills, mark_lost, plans, record, spool_of, unfinished_tables
from connector.spool.backfill.sealing import BackfillWriter, remaining
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.sink_report import NOTHING, write_report
from connector.spool.writing import initialize
from emulator import ScriptedServer
from tests.connector.builders import column
from tests.connector.spanner.snapshot.scripted import contents, dialect_of, middle, serving, source_of
from tests.connector.spool.backfill.builders import recorded, schema, spool_with_start

SCHEMA = TableSchema.of(
    "T",
    [column("A", "INT64", 1, key=True), column("B", "FLOAT64", 2, key=True), column("C", ordinal=3)],
    ["B", "A"],
)


def test_keys_have_spanners_encoding_and_the_order_of_the_key() -> None:
    assert key_text(SCHEMA, {"A": 2**60, "B": 1.5, "C": "c"}) == b'{"B":1.5,"A":"1152921504606846976"}'
    assert key_text(SCHEMA, {"A": None, "B": "NaN"}) == b'{"B":"NaN","A":null}'
    assert key_text(SCHEMA, {"A": "12", "B": None}) == b'{"B":null,"A":"12"}', "OpenCDC has long integers as texts"


def test_keys_of_any_number_come_back_in_lists_with_their_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.proof.verify.differing_keys._HELD", 3)
    keys = DifferingKeys(tmp_path)
    kinds = [RowKind.MISSING, RowKind.EXTRA, RowKind.DIFFERENT]
    for number in range(10):
        keys.add(kinds[number % 3], SCHEMA, {"A": number, "B": "line\nbreak"})
    found = list(keys.of("T", 4))
    assert [len(some) for some in found] == [4, 4, 2]
    assert [one.is_extra for some in found for one in some] == [number % 3 == 1 for number in range(10)]
    assert [orjson.loads(one.text)["A"] for some in found for one in some] == [str(number) for number in range(10)]
    assert keys.counts == {("T", RowKind.MISSING): 4, ("T", RowKind.EXTRA): 3, ("T", RowKind.DIFFERENT): 3}
    assert keys.tables == ["T"]


async def _tables(source: SourceConfig) -> list[TableSchema]:
    async with opened(source) as stream:
        return list(stream.stream.tables)


class Repaired:
    """A repair of a scripted Spanner's tables."""

    def __init__(self, server: ScriptedServer, folder: Path) -> None:
        self.server = server
        self.at = middle(server) // 1000 * 1000
        self.spool = Spool.at(folder / "spool")
        self.tables = asyncio.run(_tables(source_of(server)))
        (folder / "keys").mkdir()
        self.keys = DifferingKeys(folder / "keys")
        self.filler = RepairFiller(source_of(server), None, self.keys)
        self.header: SpoolHeader = initialize(
            self.spool, source_of(server).name, self.at + 1, "now", self.tables, default_schema="d"
        )

    def config(self) -> Config:
        """The configuration of a sink beside it."""
        source = {**source_of(self.server).name.model_dump(), "emulator_host": source_of(self.server).emulator_host}
        return validated({"source": source, "spool": {"path": self.spool.path}})

    def with_missing_row(self) -> TableSchema:
        """A table that lacks one row at the destination, which is to be repaired."""
        table = next(table for table in self.tables if self.rows(table))
        self.keys.add(RowKind.MISSING, table, self.rows(table)[0])
        return table

    def record(self, *tables: TableSchema) -> Backfill:
        return record(
            self.spool,
            self.header,
            tables,
            timestamp=lambda: self.at,
            why="repair",
            dialect=dialect_of(self.server).name,
            now=time.time_ns(),
            fill=self.filler.fill,
        )

    def record_backfill(self, table: TableSchema) -> None:
        """Records a backfill that nobody reads."""
        record(
            self.spool,
            self.header,
            [table],
            timestamp=lambda: self.at,
            why="command",
            dialect=dialect_of(self.server).name,
            now=time.time_ns(),
        )

    def rows(self, table: TableSchema) -> list[dict[str, object]]:
        """The rows that Spanner has at the timestamp, in its encoding, which is that of its keys' texts."""
        return contents(self.server, table.table, self.at)

    def events(self, own: Spool) -> list[tuple[int, str, str, dict[str, object]]]:
        """Epoch, table, mod type and payload of each event, in order."""
        return [
            (manifest.epoch, event["object"], event["source_metadata"]["mod_type"], orjson.loads(event["payload"]))
            for manifest in own.manifests(1, own.latest())
            for file in manifest.files
            for batch in own.batches(file)
            for event in batch.to_pylist()
        ]


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_rows_are_sent_as_they_are_and_rows_too_many_as_deletes_which_come_first(dialect: str, tmp_path: Path) -> None:
    with serving(dialect=dialect) as server:
        repaired = Repaired(server, tmp_path)
        tables = [table for table in repaired.tables if len(repaired.rows(table)) >= 4][:2]
        sent, gone = {}, {}
        for table in tables:
            first, second, third, *_ = repaired.rows(table)
            repaired.keys.add(RowKind.MISSING, table, first)
            repaired.keys.add(RowKind.DIFFERENT, table, second)
            repaired.keys.add(RowKind.EXTRA, table, third)  # it was inserted meanwhile
            sent[table.table] = [first, second, third]
            absent = [_absent(table, repaired.rows(table), number) for number in range(2)]
            repaired.keys.add(RowKind.EXTRA, table, absent[0])
            repaired.keys.add(RowKind.MISSING, table, absent[1])  # it was deleted meanwhile: that is a change
            gone[table.table] = {name: absent[0][name] for name in table.primary_keys}
        document = repaired.record(*tables)
        own = spool_of(repaired.spool, document.number)
        events = repaired.events(own)
    one, other = (table.table for table in tables)
    assert [event[:3] for event in events if event[2] == "DELETE"] == [(1, other, "DELETE"), (2, one, "DELETE")]
    assert [event[3] for event in events if event[2] == "DELETE"] == [gone[other], gone[one]]
    for epoch, name in ((3, one), (4, other)):
        found = [event[3] for event in events if event[:3] == (epoch, name, "INSERT")]
        assert sorted(map(_text, found)) == sorted(map(_text, sent[name]))
    assert len(events) == 8
    batches = [batch for manifest in own.manifests(1, 4) for file in manifest.files for batch in own.batches(file)]
    assert {text for batch in batches for text in batch["read_method"].to_pylist()} == {"spanner-repair"}
    assert {keys[1] for batch in batches for keys in batch["sort_keys"].to_pylist()} == {str(document.timestamp)}
    deleted = [event["source_metadata"]["is_deleted"] for batch in batches for event in batch.to_pylist()]
    assert sum(deleted) == 2


def test_a_repair_is_recorded_once_all_of_it_is_sealed_and_one_that_was_killed_before_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        repaired = Repaired(server, tmp_path)
        table = repaired.with_missing_row()
        seal = BackfillWriter.seal

        class KilledError(BaseException):
            """Stands for a kill, after which nothing is cleaned up."""

        def killed(self: BackfillWriter, *arguments: Any, **more: Any) -> None:
            seal(self, *arguments, **more)
            assert unfinished_tables(repaired.spool) == {table.table}, "sinks remember what is deleted"
            raise KilledError

        monkeypatch.setattr(BackfillWriter, "seal", killed)
        with pytest.raises(KilledError):
            repaired.record(table)
        assert backfills(repaired.spool) == []
        monkeypatch.setattr(BackfillWriter, "seal", seal)
        document = repaired.record(table)
        (one,) = backfills(repaired.spool)
        assert one.spool.latest() == 2
        assert [event[2] for event in repaired.events(one.spool)] == ["INSERT"]
        assert one.is_read
        writer = BackfillWriter(one.spool, one.spool.header(), document)
        assert remaining(document, plans(one.spool, document.tables), writer.sealed) == ([], [])


def test_a_repair_of_rows_that_are_too_many_bytes_or_one_that_is_stopped_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        repaired = Repaired(server, tmp_path)
        table = repaired.with_missing_row()
        changes: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"max_bytes": 1}, SpoolError),
            ({"is_stopped": lambda: True}, StoppedError),
        ]
        for change, error in changes:
            monkeypatch.setattr(repaired, "filler", RepairFiller(repaired.filler.source, None, repaired.keys, **change))
            with pytest.raises(error):
                repaired.record(table)
            assert backfills(repaired.spool) == []
            assert unfinished_tables(repaired.spool) == set()
            assert list(spool_of(repaired.spool, 1).storage.list("segments")) == []


def test_a_repair_that_was_lost_is_given_up_and_a_backfill_must_be_finished_first(tmp_path: Path) -> None:
    with serving() as server:
        repaired = Repaired(server, tmp_path)
        table = repaired.with_missing_row()
        document = repaired.record(table)
        mark_lost(spool_of(repaired.spool, document.number), "changes were merged before", now=repaired.at)
        assert unfinished_tables(repaired.spool) == {table.table}
        config = validated({"source": source_of(server).name.model_dump(), "spool": {"path": repaired.spool.path}})
        stop = StopRequest(drain_timeout=SECOND)
        for _ in range(2):
            asyncio.run(finish_earlier(config, tmp_path, stop))
            assert unfinished_tables(repaired.spool) == set()
        assert [one.document.continues for one in backfills(repaired.spool)] == [0, 1]
        repaired.record_backfill(table)
        with pytest.raises(ConfigurationError, match=r"backfill 3 of the spool at .* is not finished: run"):
            asyncio.run(finish_earlier(config, tmp_path, stop))


def test_a_backfill_that_is_recorded_while_rows_are_compared_must_be_finished_first(tmp_path: Path) -> None:
    with serving() as server:
        repaired = Repaired(server, tmp_path)
        table = repaired.with_missing_row()
        config = repaired.config()
        stop = StopRequest(drain_timeout=SECOND)
        asyncio.run(finish_earlier(config, tmp_path, stop))
        repaired.record_backfill(table)
        with pytest.raises(ConfigurationError, match=r"backfill 1 of the spool at .* is not finished: run"):
            asyncio.run(repair(config, tmp_path, stop, repaired.keys, RepairReport(repaired.keys.counts)))
        assert len(backfills(repaired.spool)) == 1, "a restart continues the backfill"


def test_a_table_that_is_stopped_is_not_repaired_because_its_dead_letters_would_undo_that(tmp_path: Path) -> None:
    with serving() as server:
        repaired = Repaired(server, tmp_path)
        table = next(table for table in repaired.tables if repaired.rows(table))
        repaired.keys.add(RowKind.EXTRA, table, repaired.rows(table)[0])
        config = repaired.config()
        write_report(repaired.spool, "files", NOTHING.after(1, 3, {table.table: "its disk is full"}))
        stop, report = StopRequest(drain_timeout=SECOND), RepairReport(repaired.keys.counts)
        with pytest.raises(ConfigurationError, match=f"--repair: table {table.table} is stopped at sink files"):
            asyncio.run(repair(config, tmp_path, stop, repaired.keys, report))
        assert backfills(repaired.spool) == []


def test_a_table_that_a_backfill_has_stopped_is_not_repaired_either(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path / "spool")
    one = recorded(spool, header, "A", "B")
    write_report(spool_of(spool, one.number), "files", NOTHING.after(1, 3, {"A": "its disk is full"}))
    keys = DifferingKeys(tmp_path)
    keys.add(RowKind.EXTRA, schema("A"), {"Id": 1})
    with pytest.raises(ConfigurationError, match="--repair: table A is stopped at sink files"):
        _check_stopped(spool, "files", keys)
    _check_stopped(spool, "another", keys)


def _absent(table: TableSchema, rows: list[dict[str, object]], number: int) -> dict[str, object]:
    """A row with a key that the table does not have."""
    name = table.primary_keys[0]
    of_type = next(column.type for column in table.columns if column.name == name)
    value = str(10**15 + number) if "INT64" in of_type else f"absent {number}"
    return {**rows[0], name: value}


def _text(row: dict[str, object]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
