"""Cases 7 and 14: the meanings of OUT_OF_RANGE, and the end of a reader whose data is no longer retained."""

from pathlib import Path

import grpc
import pytest

from connector.core.partitions import CutPartition
from connector.errors import DataLostError, StreamError
from emulator import Fault, FaultKind, FaultPlan
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, at
from tests.faults.proxy import CallFault, proxied
from tests.integration.commands import manifests, run, watermark
from tests.peers.histories import DAY, partition, split, stream
from tests.peers.served import daemon_reads, served, settings, singers_of_spool, tailed, written
from tests.peers.virtual import Checkpoint, read, resumes_from_everywhere

Code = grpc.StatusCode
EIGHT = list(range(1, 9))
OUT_OF_RANGE = {
    "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest read"
    " timestamp: 2026-09-22T00:00:00+00:00. Received start_timestamp: 2026-09-21T14:13:30+00:00.": 3,
    "This partition is no longer valid. All Change Stream records associated with this partition have expired and have"
    " been deleted, as specified by the Change Stream retention period.": 3,
    "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within"
    " 2026-09-21T14:13:20+00:00 and infinite-future. Received start_timestamp: 2026-09-21T14:13:30+00:00.": 1,
    "Specified start_timestamp is too far in the future.": 2,
    "heartbeat_milliseconds must be within min 100 and max 300000.": 2,
    "A text that nobody has seen yet.": 1,
}


# Beam S: "invalid for the partition" ended a partition however much of it was read; other texts were not distinguished
@pytest.mark.long(but=6)
@pytest.mark.parametrize("message", OUT_OF_RANGE, ids=lambda text: text[:45])
@pytest.mark.parametrize("after", [0, 1])
def test_case_07_no_meaning_of_out_of_range_is_skipped(message: str, after: int) -> None:
    fault = CallFault(Code.OUT_OF_RANGE, message, matches=lambda call: call.token == "left", after=after, times=99)
    with served(split()) as server, proxied(server.host, fault) as proxy:
        done = tailed(server, emulator_host=proxy.host)
    assert fault.injected == 1, "the query was retried"
    assert done.error is not None
    assert done.error.exit_code == OUT_OF_RANGE[message]
    assert message.split(".")[0] in str(done.error)
    assert done.singers == [1][: len(done.singers)]


# Beam S: the texts of loss, in another error
def test_case_07_the_texts_of_loss_mean_no_loss_in_an_error_of_another_code() -> None:
    fault = CallFault(Code.FAILED_PRECONDITION, next(iter(OUT_OF_RANGE)), times=99)
    with served(split()) as server, proxied(server.host, fault) as proxy:
        done = tailed(server, emulator_host=proxy.host)
    assert done.error is not None
    assert not isinstance(done.error, DataLostError)
    assert done.error.exit_code == 1


# Beam S: a query from a tick past the partition's end, once everything but the OK was received
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_07_a_partition_is_never_queried_from_a_tick_past_its_end(dialect: Dialect, mode: PartitionMode) -> None:
    scenario = split(dialect, mode)
    for after in range(7):
        plan = FaultPlan().rule(Fault(FaultKind.UNAVAILABLE, after), token="left")
        reading = read(scenario, faults=plan, now=31)
        assert reading.singers == EIGHT
        assert reading.refused == 0
    resumes_from_everywhere(scenario, read(scenario), now=31)


# Beam S: the same, said of a partition whose children are not known
def test_case_07_a_partition_that_cannot_be_queried_from_its_progress_stops_the_reader() -> None:
    stale = Checkpoint(at(22), (CutPartition("left", at(0)), CutPartition("right", at(0))))
    with pytest.raises(StreamError, match="invalid for the partition"):
        read(split(), begin=stale, now=31)


# Debezium S: every error was retriable
@pytest.mark.long
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
def test_case_14_expired_retention_ends_the_daemon_with_3_each_time_and_without_a_retry(
    mode: PartitionMode, tmp_path: Path
) -> None:
    scenario, spool = split(mode=mode), tmp_path / "spool"
    with served(scenario, now=31) as server:
        daemon_reads(server, spool, end=at(13))
    sealed = len(manifests(spool))
    with served(scenario, now=30 + 2 * DAY / 10**9) as server:
        config = written(tmp_path / "config.yaml", settings(server, spool))
        for attempt in (1, 2):
            done = run("read", config)
            assert done.code == 3, done.err
            assert "is lost" in done.complaint
            assert "--restart-at" in done.complaint
            assert server.engine.refused <= 2 * attempt  # one of each partition in the cut
    assert (len(manifests(spool)), watermark(spool)) == (sealed, at(13))
    assert singers_of_spool(spool) == [1, 2, 3]


# Debezium S: and while it reads
@pytest.mark.parametrize("kind", [FaultKind.EXPIRED_START, FaultKind.EXPIRED_PARTITION])
def test_case_14_retention_that_expires_while_the_daemon_reads_ends_it_too(kind: FaultKind, tmp_path: Path) -> None:
    scenario, spool = split(), tmp_path / "spool"
    with served(scenario, now=31) as server:
        daemon_reads(server, spool, end=at(13))
        server.engine.faults.rule(Fault(kind, after=1), token="left", times=99)
        with pytest.raises(DataLostError) as lost:
            daemon_reads(server, spool)
    assert lost.value.exit_code == 3
    assert server.engine.faults.struck == {kind.value: 1}
    assert singers_of_spool(spool) == [1, 2, 3]


# Debezium S: the start itself
def test_case_14_a_start_that_is_not_retained_is_rejected_before_anything_starts(tmp_path: Path) -> None:
    with served(stream(partition("one", 0, [])), now=30 + 2 * DAY / 10**9) as server:
        done = run("read", written(tmp_path / "config.yaml", settings(server, tmp_path / "spool")))
    assert done.code == 3
    assert not (tmp_path / "spool" / "spool.json").exists()
