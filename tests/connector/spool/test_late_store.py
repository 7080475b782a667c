"""Late records in a spool: their documents, the report of them, and the limits."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from connector.cli import cli
from connector.core.epoch import IncompleteTransaction
from connector.core.late_records import LateRecord, LateReport
from connector.core.partitions import CutPartition
from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    DataChangeRecord,
    Mod,
    PartitionStartRecord,
    partition_id,
)
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError, StreamError
from connector.spool.late_store import LateRange, LateRanges, LateStore, late_report, with_announced_late
from connector.spool.reading import Spool
from connector.spool.writing import initialize
from tests.connector.builders import AT, COLUMNS, record
from tests.connector.spool.sealing import NAME

LATER = AT + 9 * SECOND


@pytest.fixture
def spool(spool_path: str) -> Spool:
    """A spool without epochs."""
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [TableSchema.of("Singers", COLUMNS)])
    return spool


def late(made: DataChangeRecord | ChildPartitionsRecord | PartitionStartRecord) -> LateRecord:
    return LateRecord("token", made, passed=AT + 5, watermark=AT + 3, delivered=AT + 2)


def documents(spool: Spool) -> list[dict[str, object]]:
    return [
        orjson.loads(spool.storage.read(f"late/{name}").to_pybytes()) for name in sorted(spool.storage.list("late"))
    ]


def test_a_late_data_change_record_is_kept_whole(spool: Spool) -> None:
    made = record(mods=(Mod('{"Id":"1"}', '{"Name":"a"}', "{}"),))
    LateStore(spool).keep([late(made)], now=LATER)
    (document,) = documents(spool)
    assert document["version"] == 1
    assert (document["kind"], document["partition"]) == ("data change record", "token")
    assert document["incomplete"] == {"first": format_rfc3339(AT), "last": format_rfc3339(AT)}
    assert (document["proved_up_to"], document["watermark"]) == (format_rfc3339(AT + 5), format_rfc3339(AT + 3))
    assert document["delivered"] == format_rfc3339(AT + 2)
    assert document["received_at"] == format_rfc3339(LATER)
    kept = document["record"]
    assert isinstance(kept, dict)
    assert set(kept) == set(DataChangeRecord.__slots__)
    assert kept["commit_timestamp"] == format_rfc3339(AT)
    assert kept["mods"] == [{"keys": '{"Id":"1"}', "new_values": '{"Name":"a"}', "old_values": "{}"}]


def test_a_late_announcement_is_kept_with_its_tokens_and_the_range_that_may_be_incomplete(spool: Spool) -> None:
    children = ChildPartitionsRecord(AT, "0", (ChildPartition("child", frozenset({"b", "a"})),))
    LateStore(spool).keep([late(children)], now=LATER)
    (document,) = documents(spool)
    assert document["kind"] == "child partitions record"
    assert document["incomplete"] == {"first": format_rfc3339(AT), "last": format_rfc3339(AT + 3)}
    assert document["record"] == {
        "start_timestamp": format_rfc3339(AT),
        "record_sequence": "0",
        "children": [{"token": "child", "parents": ["a", "b"]}],
    }
    assert late_report(spool) == LateReport(1, AT, AT + 3)


@pytest.mark.parametrize(
    "made",
    [
        ChildPartitionsRecord(AT, "0", tuple(ChildPartition(token, frozenset()) for token in ("b", "c"))),
        PartitionStartRecord(AT, ("b", "c")),
    ],
)
def test_partitions_that_no_cut_has_yet_are_found_again(
    made: ChildPartitionsRecord | PartitionStartRecord, spool: Spool
) -> None:
    LateStore(spool).keep([late(made), late(record())], now=LATER)
    cut = (CutPartition("a", AT), CutPartition("c", AT))
    a, b, c = CutPartition("a", AT), CutPartition("b", AT, is_late=True), CutPartition("c", AT, is_late=True)

    def found(watermark: int) -> set[CutPartition]:
        return set(with_announced_late(spool, watermark, cut, continues=True))

    assert found(AT + 2) == found(AT) == {a, b, c}
    assert found(AT + 3) == {a, c}, "an epoch was sealed since, whose cut has what is alive"
    assert found(AT + 4) == set(cut), "and later ones than the watermark was then"
    assert found(AT - 1) == set(cut), "it is announced again"
    stops = with_announced_late(spool, AT + 2, cut, continues=False)
    assert set(stops) == {a, CutPartition("b", AT), CutPartition("c", AT)}


def test_a_document_that_is_damaged_is_named(spool: Spool) -> None:
    LateStore(spool).keep([late(record())], now=LATER)
    (name,) = spool.storage.list("late")
    spool.storage.replace(f"late/{name}", b'{"version": 1}')
    with pytest.raises(SpoolError, match=name):
        with_announced_late(spool, AT, (), continues=True)


def test_the_same_record_that_comes_once_more_is_no_second_document(spool: Spool) -> None:
    LateStore(spool).keep([late(record()), late(record(record_sequence="00000002"))], now=LATER)
    LateStore(spool).keep([late(record(read_timestamp=LATER))], now=LATER + 1)
    assert late_report(spool) == LateReport(2, AT, AT)


def test_all_incomplete_transactions_share_one_document_of_every_table(spool: Spool) -> None:
    """A server that breaks that promise for each transaction does not fill the folder, and stops no reader."""
    ranges = LateRanges(spool)
    for number in range(3):
        found = IncompleteTransaction(f"transaction {number}", AT + number, 3, 2)
        LateStore(spool, most=1).keep([found], now=LATER)
        assert ranges.now() == [LateRange(AT, AT + number, None)]
    LateStore(spool, most=1).keep([IncompleteTransaction("transaction 1", AT + 1, 3, 2)], now=LATER)  # read again
    (document,) = documents(spool)
    assert late_report(spool) == LateReport(1, AT, AT + 2)
    assert document["kind"] == "incomplete transactions"
    assert document["incomplete"] == {"first": format_rfc3339(AT), "last": format_rfc3339(AT + 2)}
    assert document["record"] == {
        "server_transaction_id": "transaction 1",
        "commit_timestamp": format_rfc3339(AT + 1),
        "number_of_records_in_transaction": 3,
        "received_records": 2,
    }
    assert with_announced_late(spool, AT, (), continues=True) == (), "it announces no partition"


@pytest.mark.parametrize("widest_first", [True, False])
def test_an_announcement_that_comes_once_more_is_no_second_document_whatever_the_watermark(
    spool: Spool, *, widest_first: bool
) -> None:
    children = ChildPartitionsRecord(AT, "0", (ChildPartition("child", frozenset({"a"})),))
    attempts = [LateRecord("token", children, AT + 5, AT + watermark, AT - 1) for watermark in (3, 4)]
    for one in reversed(attempts) if widest_first else attempts:
        LateStore(spool).keep([one], now=LATER)  # as each task does
    assert len(documents(spool)) == 1
    assert late_report(spool) == LateReport(1, AT, AT + 4)


def test_a_record_that_two_tasks_store_at_the_same_time_counts_once(spool: Spool) -> None:
    children = ChildPartitionsRecord(AT, "0", (ChildPartition("child", frozenset({"a"})),))
    stores = LateStore(spool), LateStore(spool)
    for store in stores:
        store.keep([late(record())], now=LATER)  # both know what was there before
    for watermark, store in enumerate(stores, start=3):
        store.keep([LateRecord("token", children, AT + 5, AT + watermark, AT - 1)], now=LATER)
    assert late_report(spool) == LateReport(2, AT, AT + 4)


def test_documents_are_private(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path / "spool")
    LateStore(spool).keep([late(record())], now=LATER)
    (path,) = (tmp_path / "spool" / "late").iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_beyond_so_many_documents_the_reader_stops_with_what_came_kept(spool: Spool) -> None:
    few = [late(record(record_sequence=str(number))) for number in range(3)]
    LateStore(spool, most=2).keep(few[:2], now=LATER)
    with pytest.raises(StreamError, match="the spool has 3 late records") as told:
        LateStore(spool, most=2).keep(few[2:], now=LATER)
    assert told.value.exit_code == 1
    assert late_report(spool).count == 3
    with pytest.raises(StreamError, match="bytes"):
        LateStore(spool, most_bytes=10).keep(few[:1], now=LATER)


def test_the_spool_command_reports_how_many_there_are_and_their_range(spool: Spool) -> None:
    def told(*options: str) -> str:
        return CliRunner().invoke(cli, ["spool", spool.path, *options], catch_exceptions=False).stdout

    assert "LATE" not in told()
    assert orjson.loads(told("--json"))["late_records"] == {"count": 0, "first": None, "last": None}
    LateStore(spool).keep([late(record()), late(record(commit_timestamp=LATER))], now=LATER)
    counted = "LATE: 2 documents of late records or incomplete transactions are in late/"
    assert f"{counted}, committed from {format_rfc3339(AT)}" in told()
    assert orjson.loads(told("--json"))["late_records"] == {
        "count": 2,
        "first": format_rfc3339(AT),
        "last": format_rfc3339(LATER),
    }


def test_a_late_announcement_of_a_placements_function_is_read_back_as_a_partition_of_it(spool: Spool) -> None:
    made = PartitionStartRecord(AT, ("child",))
    announced = LateRecord(partition_id("token", "F"), made, passed=AT + 5, watermark=AT + 3, delivered=AT + 2)
    LateStore(spool).keep([announced], now=LATER)
    (document,) = documents(spool)
    assert (document["partition"], document["function"]) == ("token", "F")
    found = with_announced_late(spool, AT + 2, (), continues=True)
    assert found == (CutPartition(partition_id("child", "F"), AT, is_late=True),)
