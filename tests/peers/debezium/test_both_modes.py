"""Debezium's scenarios that hold in both partition modes and both dialects, each read into a spool."""

from pathlib import Path

import pytest

from emulator import TABLES
from emulator.scenario.history import Change, PartitionMode, ReportedMod
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, at
from tests.peers.debezium.rows import Told, of, one_partition, split_at, told, write
from tests.peers.histories import KEY, change, column, partition, stream
from tests.peers.served import daemon_reads, events_of_spool, served

forms = pytest.mark.parametrize(("dialect", "mode"), FORMS)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# shouldStreamCrudEventsToKafka
@forms
def test_an_insert_an_update_and_a_delete_of_a_row_are_read_in_order(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    changes = [write(5, 1, "INSERT", "a"), write(6, 1, "UPDATE", "b"), write(7, 1, "DELETE")]
    with served(one_partition(*changes, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    assert told(spool) == [(1, "INSERT", "a"), (1, "UPDATE", "b"), (1, "DELETE", None)]


# shouldNotRepublishEventsAfterConnectorRestart: there an earlier event may come again
@forms
def test_a_row_that_is_written_while_the_reader_is_down_is_read_and_no_earlier_one_again(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    changes = [write(5, 1, "INSERT", "before"), write(15, 2, "INSERT", "while it is down")]
    with served(one_partition(*changes, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool, end=at(10))
        assert told(spool) == of(changes[:1])
        daemon_reads(server, spool)
    assert told(spool) == of(changes)


# shouldNotReplayAfterWindowElapses
@pytest.mark.long(but=2)
@forms
def test_a_restart_after_everything_was_read_reads_nothing_again(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    changes = [write(5, 1, "INSERT", "a")]
    with served(one_partition(*changes, dialect=dialect, mode=mode)) as server:
        for end in (10, 20, 30):
            daemon_reads(server, spool, end=at(end))
    assert told(spool) == of(changes)


FAST = [write(20 + 0.01 * number, key, "UPDATE", f"{number}") for number in range(5) for key in (500, 1500, 2500)]
EARLIER = [write(5, key, "INSERT", "new") for key in (500, 1500, 2500)]


def is_low(one: Change) -> bool:
    return int(str(one.mods[0].keys["SingerId"])) < 1500


# shouldPreserveOrderAcrossForcedKeyRangeSplit, CrossPartitionSplitOrdering
@forms
def test_updates_right_after_a_split_are_read_in_order_without_a_gap(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    low, high = [one for one in FAST if is_low(one)], [one for one in FAST if not is_low(one)]
    with served(stream(*split_at(20, EARLIER, low, high, mode), dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    assert told(spool) == of([*EARLIER, *FAST])


# shouldNotLoseOrReorderEventsWhenStoppedDuringForcedKeyRangeSplit: there duplicates are allowed
@pytest.mark.long(but=4)
@forms
@pytest.mark.parametrize("stop", [20 - 1e-9, 20, 20.02])
def test_a_reader_that_is_stopped_at_a_split_loses_repeats_and_reorders_nothing(
    dialect: Dialect, mode: PartitionMode, stop: float, spool: Path
) -> None:
    low, high = [one for one in FAST if is_low(one)], [one for one in FAST if not is_low(one)]
    with served(stream(*split_at(20, EARLIER, low, high, mode), dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool, end=at(stop))
        daemon_reads(server, spool)
    assert told(spool) == of([*EARLIER, *FAST])


# shouldNotLoseEventsWhenStoppedMidWindow, shouldNotLoseDeleteWhenStoppedMidWindow
@pytest.mark.long(but=4)
@forms
@pytest.mark.parametrize("last", ["UPDATE", "DELETE"])
def test_a_reader_that_is_stopped_between_changes_reads_the_rest_after_its_restart(
    dialect: Dialect, mode: PartitionMode, last: str, spool: Path
) -> None:
    end = write(25, 3, "DELETE") if last == "DELETE" else write(25, 3, "UPDATE", "last")
    changes = [*(write(5 * number, number, "INSERT", f"{number}") for number in range(1, 5)), end]
    with served(one_partition(*changes, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool, stop_at=at(11))
        daemon_reads(server, spool)
    assert told(spool) == of(changes)


# shouldDeliverAllModsFromLargeSingleTransaction, TransactionRecordCount
@forms
def test_the_mods_of_a_transaction_of_many_records_are_in_one_epoch_in_their_order(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    changes = [
        write(
            5,
            number,
            "INSERT",
            "one",
            transaction="the large one",
            record_sequence=f"{3 * number:08d}",
            number_of_records_in_transaction=20,
            is_last_record_in_transaction_in_partition=number == 20,
        )
        for number in range(1, 21)
    ]
    with served(one_partition(*changes, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    events = events_of_spool(spool)
    metadata = [event["source_metadata"] for event in events]
    assert [key for key, _, _ in told(spool)] == list(range(1, 21))
    assert {one["server_transaction_id"] for one in metadata} == {"the large one"}
    assert {one["number_of_records_in_transaction"] for one in metadata} == {20}
    assert len({event["epoch"] for event in events}) == 1


# shouldPickUpSchemaChangeMidStream, shouldPickUpSchemaChangeMidStreamForNewInserts
@forms
def test_a_column_that_is_added_is_in_later_events_without_a_restart(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    added = (KEY, column("FirstName", "STRING", 2), column("Nickname", "STRING", 3))
    later = change(
        at(20), 2, columns=added, mods=(ReportedMod({"SingerId": "2"}, {"FirstName": "b", "Nickname": "n"}, {}),)
    )
    events = [write(10, 1, "INSERT", "a"), later]
    with served(one_partition(*events, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    first, second = (event["payload"] for event in events_of_spool(spool))
    assert "Nickname" not in first
    assert '"Nickname":"n"' in second


# ConcurrentKeys
@forms
def test_each_keys_changes_are_in_order_though_partitions_share_their_timestamps(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    changes = [
        write(5 + n, key, "UPDATE", f"{n}", transaction=f"transaction {n} of {key}")
        for n in range(16)
        for key in (1, 2)
    ]
    parts = [
        partition(f"of {key}", 0, [one for one in changes if one.mods[0].keys["SingerId"] == str(key)])
        for key in (1, 2)
    ]
    with served(stream(*parts, dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    found = told(spool)
    for key in (1, 2):
        expected: list[Told] = [(key, "UPDATE", f"{n}") for n in range(16)]
        assert [one for one in found if one[0] == key] == expected


# InterleavedTable: a cascading delete
@forms
def test_the_rows_of_an_interleaved_table_that_a_delete_takes_along_share_its_transaction(
    dialect: Dialect, mode: PartitionMode, spool: Path
) -> None:
    albums = (KEY, column("AlbumId", "INT64", 2, key=True), column("Title", "STRING", 3))
    child = change(
        at(5),
        1,
        table="Albums",
        columns=albums,
        mod_type="DELETE",
        mods=tuple(ReportedMod({"SingerId": "1", "AlbumId": str(album)}, {}, {}) for album in (1, 2)),
        record_sequence="00000001",
        server_transaction_id="the delete",
        number_of_records_in_transaction=2,
    )
    events = [
        write(5, 1, "DELETE", record_sequence="00000002", transaction="the delete", number_of_records_in_transaction=2),
        child,
    ]
    assert "Albums" in {table.name for table in TABLES}
    with served(one_partition(*reversed(events), dialect=dialect, mode=mode)) as server:
        daemon_reads(server, spool)
    found = [event["source_metadata"] for event in events_of_spool(spool)]
    assert [event["table"] for event in found] == ["Albums", "Albums", "Singers"]
    assert {(event["server_transaction_id"], event["mod_type"]) for event in found} == {("the delete", "DELETE")}
