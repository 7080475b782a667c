import multiprocessing
from collections.abc import Iterator
from datetime import UTC, datetime

import grpc
import pytest
from google.api_core.exceptions import (
    Aborted,
    GoogleAPICallError,
    InternalServerError,
    InvalidArgument,
    MethodNotImplemented,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    ServiceUnavailable,
)
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1.types import BatchCommitWriteStreamsResponse, StorageError, WriteStream
from google.rpc.status_pb2 import Status

from emulator.bigquery.double import BigQueryDouble, Counts, StorageCode, serve
from tests.emulator.bigquery.caller import DATASET, PENDING, Caller, calling, default, message, request, storage_code

ID = SchemaField("id", "INT64")
NAME = SchemaField("name", "STRING")
PERSON = message(id="int64", name="string")
CODE = grpc.StatusCode
NOW = datetime(2024, 5, 6, tzinfo=UTC)


@pytest.fixture
def caller() -> Iterator[Caller]:
    with BigQueryDouble.started(now=lambda: NOW) as double, calling(double) as called:
        yield called


@pytest.fixture
def table(caller: Caller) -> str:
    return caller.make("t", ID, NAME)


def ids(caller: Caller, table: str = "t") -> list[object]:
    return [row["id"] for row in caller.rows(table)]


def why_not(answer: BatchCommitWriteStreamsResponse) -> list[tuple[str, StorageCode]]:
    assert bool(answer.commit_time) != bool(answer.stream_errors)
    return [(error.entity, StorageCode(error.code)) for error in answer.stream_errors]


def test_pending_rows_appear_when_they_are_committed(caller: Caller, table: str) -> None:
    made = caller.write.create_write_stream(parent=table, write_stream=PENDING)
    assert made.name.startswith(f"{table}/streams/")
    assert [field.name for field in made.table_schema.fields] == ["id", "name"]
    rows = [request(made.name, PERSON, {"id": n}, {"id": n + 1}, offset=n) for n in (0, 2)]
    assert [answer.append_result.offset for answer in caller.send(rows)] == [0, 2]
    assert caller.append(made.name, PERSON, {"id": 4}).append_result.offset == 4
    assert caller.write.finalize_write_stream(name=made.name).row_count == 5
    assert ids(caller) == []
    assert caller.write.get_write_stream(name=made.name).commit_time is None
    assert caller.commit(table, made.name).commit_time == NOW
    assert ids(caller) == [0, 1, 2, 3, 4]
    assert caller.write.get_write_stream(name=made.name).commit_time == NOW
    assert caller.double.pending_streams() == []


def test_an_offset_is_where_the_stream_ends(caller: Caller, table: str) -> None:
    stream = caller.pend(table)
    answers = caller.send(
        [request(stream, PERSON, {"id": n}, offset=offset) for n, offset in enumerate((1, 0, 0, 5, 1))]
    )
    codes = [(answer.error.code, storage_code(answer)) for answer in answers]
    beyond = (CODE.OUT_OF_RANGE.value[0], StorageCode.OFFSET_OUT_OF_RANGE)
    within = (CODE.ALREADY_EXISTS.value[0], StorageCode.OFFSET_ALREADY_EXISTS)
    assert codes == [beyond, (0, None), within, beyond, (0, None)]
    assert "The offset is within stream, expected offset 1, received 0" in answers[2].error.message
    assert caller.write.finalize_write_stream(name=stream).row_count == 2


def test_the_default_stream_has_no_offsets_and_no_end(caller: Caller, table: str) -> None:
    answer = caller.append(default(table), PERSON, {"id": 1}, offset=0)
    assert answer.error.code == CODE.INVALID_ARGUMENT.value[0]
    with pytest.raises(InvalidArgument):
        caller.write.finalize_write_stream(name=default(table))
    assert why_not(caller.commit(table, default(table))) == [(default(table), StorageCode.INVALID_STREAM_TYPE)]
    assert caller.write.get_write_stream(name=default(table)).type_ == WriteStream.Type.COMMITTED


def test_a_finalized_or_committed_stream_accepts_no_rows(caller: Caller, table: str) -> None:
    stream = caller.pend(table)
    caller.append(stream, PERSON, {"id": 1})
    for end in (caller.write.finalize_write_stream, caller.write.finalize_write_stream):
        assert end(name=stream).row_count == 1
        answer = caller.append(stream, PERSON, {"id": 2}, offset=1)
        assert storage_code(answer) is StorageCode.STREAM_FINALIZED
    caller.commit(table, stream)
    assert storage_code(caller.append(stream, PERSON, {"id": 2}, offset=1)) is StorageCode.STREAM_FINALIZED
    assert ids(caller) == [1]


def test_a_commit_returns_the_error_of_each_stream_and_commits_none(caller: Caller, table: str) -> None:
    good, again, unfinished, expired, forgotten = (caller.pend(table) for _ in range(5))
    for stream in (good, again, unfinished):
        caller.append(stream, PERSON, {"id": int(stream.rpartition("s")[2])})
    for stream in (good, again, expired, forgotten):
        caller.write.finalize_write_stream(name=stream)
    assert why_not(caller.commit(table, again)) == []
    caller.double.expire(expired)
    caller.double.expire(forgotten, forgotten=True)
    unknown = f"{table}/streams/unknown"
    before = ids(caller)
    assert why_not(caller.commit(table, good, again, unfinished, expired, forgotten, unknown)) == [
        (again, StorageCode.STREAM_ALREADY_COMMITTED),
        (unfinished, StorageCode.INVALID_STREAM_STATE),
        (expired, StorageCode.INVALID_STREAM_STATE),
        (forgotten, StorageCode.STREAM_NOT_FOUND),
        (unknown, StorageCode.STREAM_NOT_FOUND),
    ]
    assert ids(caller) == before
    assert why_not(caller.commit(table, good)) == []
    assert len(ids(caller)) == len(before) + 1


def test_a_commit_is_of_one_tables_streams_each_named_once(caller: Caller, table: str) -> None:
    other = caller.pend(caller.make("other", ID))
    mine = caller.pend(table)
    for streams in ([], [mine, mine], [mine, other], ["nonsense"]):
        with pytest.raises(InvalidArgument):
            caller.commit(table, *streams)


def test_missing_resources_are_not_found(caller: Caller, table: str) -> None:
    unknown = f"{table}/streams/unknown"
    with pytest.raises(NotFound) as raised:
        caller.append(unknown, PERSON, {"id": 1})
    assert status_code(raised.value) is StorageCode.STREAM_NOT_FOUND
    with pytest.raises(NotFound):
        caller.write.get_write_stream(name=unknown)
    with pytest.raises(NotFound):
        caller.write.finalize_write_stream(name=unknown)
    missing = table.replace("/tables/t", "/tables/none")
    with pytest.raises(NotFound, match=r"Not found: Table double:sales\.none"):
        caller.append(default(missing), PERSON, {"id": 1})
    with pytest.raises(NotFound, match="Not found: Table"):
        caller.pend(missing)
    with pytest.raises(PermissionDenied):
        caller.pend(table.replace("projects/double", "projects/other"))
    with pytest.raises(InvalidArgument):
        caller.append("nonsense", PERSON, {"id": 1})


def status_code(error: GoogleAPICallError) -> StorageCode:
    """Returns the code of the StorageError that a call ended with."""
    metadata = dict(error.errors[0].trailing_metadata())
    status = Status.FromString(metadata["grpc-status-details-bin"])
    unpacked = StorageError.pb()()
    assert status.details[0].Unpack(unpacked)
    return StorageCode(unpacked.code)


def test_only_pending_streams_can_be_created(caller: Caller, table: str) -> None:
    for kind in (WriteStream.Type.COMMITTED, WriteStream.Type.BUFFERED):
        with pytest.raises(MethodNotImplemented):
            caller.write.create_write_stream(parent=table, write_stream=WriteStream(type_=kind))


def test_a_stream_ends_when_it_expires_or_its_table_is_deleted(caller: Caller, table: str) -> None:
    expired, orphan = caller.pend(table), caller.pend(table)
    caller.double.expire(expired)
    with pytest.raises(NotFound):
        caller.append(expired, PERSON, {"id": 1})
    caller.double.drop(DATASET, "t")
    with pytest.raises(NotFound, match="Not found: Table"):
        caller.append(orphan, PERSON, {"id": 1})
    caller.make("t", ID, NAME)
    with pytest.raises(NotFound, match="Table was deleted") as raised:
        caller.append(orphan, PERSON, {"id": 1})
    assert status_code(raised.value) is StorageCode.TABLE_NOT_FOUND
    assert why_not(caller.commit(table, orphan)) == [(orphan, StorageCode.STREAM_NOT_FOUND)]
    assert not caller.append(default(table), PERSON, {"id": 1}).error.code


def test_a_denied_table_is_not_written_until_it_is_allowed(caller: Caller, table: str) -> None:
    stream = caller.pend(table)
    caller.double.deny(DATASET, "t")
    for name in (stream, default(table)):
        with pytest.raises(PermissionDenied):
            caller.append(name, PERSON, {"id": 1})
    with pytest.raises(PermissionDenied):
        caller.pend(table)
    with pytest.raises(PermissionDenied):
        caller.commit(table, stream)
    caller.double.allow(DATASET, "t")
    assert not caller.append(stream, PERSON, {"id": 1}).error.code


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("UNAVAILABLE", ServiceUnavailable),
        ("RESOURCE_EXHAUSTED", ResourceExhausted),
        ("INTERNAL", InternalServerError),
        ("ABORTED", Aborted),
    ],
)
def test_a_call_can_fail_before_or_after_its_rows_are_applied(
    caller: Caller, table: str, code: str, error: type[GoogleAPICallError], after: bool
) -> None:
    caller.double.fail_next(code, after=after)
    for _ in range(2):
        stream = caller.pend(table)
        requests = [request(stream, PERSON, {"id": n}, offset=n) for n in range(2)]
        if caller.double.failures_left():
            with pytest.raises(error):
                caller.send(requests)
            assert caller.write.finalize_write_stream(name=stream).row_count == int(after)
        else:
            assert len(caller.send(requests)) == 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_failure_in_band_does_not_end_the_call(caller: Caller, table: str, after: bool) -> None:
    caller.double.fail_next("INTERNAL", after=after, in_band=True)
    answers = caller.send([request(default(table), PERSON, {"id": n}) for n in range(2)])
    assert [answer.error.code for answer in answers] == [CODE.INTERNAL.value[0], 0]
    assert ids(caller) == [0, 1][not after :]


def test_extra_fields_can_be_rejected_for_a_while(caller: Caller, table: str) -> None:
    caller.double.fail_next("SCHEMA_MISMATCH_EXTRA_FIELDS", 2)
    codes = [storage_code(caller.append(default(table), PERSON, {"id": n})) for n in range(3)]
    assert codes == [StorageCode.SCHEMA_MISMATCH_EXTRA_FIELDS] * 2 + [None]
    assert ids(caller) == [2]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_response_to_a_commit_can_be_lost(caller: Caller, table: str, after: bool) -> None:
    stream = caller.pend(table)
    caller.append(stream, PERSON, {"id": 1})
    caller.write.finalize_write_stream(name=stream)
    caller.double.fail_next("UNAVAILABLE", method="BatchCommitWriteStreams", after=after)
    with pytest.raises(ServiceUnavailable):
        caller.commit(table, stream)
    assert ids(caller) == [1] * after
    assert why_not(caller.commit(table, stream)) == [(stream, StorageCode.STREAM_ALREADY_COMMITTED)] * after


def test_it_counts_requests_and_rows(caller: Caller, table: str) -> None:
    caller.send([request(default(table), PERSON, {"id": 1}, {"id": 2}), request("", PERSON, {"id": 3})])
    caller.append(default(table), message(id="int64"), {})
    caller.append(default(table), message(other="int64"), {})
    list(caller.write.append_rows(iter([request(default(table), PERSON, {"id": 4})])))
    counts = caller.double.counts
    assert (counts.appends, counts.rows, counts.unrouted) == (4, 5, 1)
    assert counts.requests == {"datasets.insert": 1, "tables.insert": 1, "AppendRows": 5}


def test_rows_are_checked_or_counted_without_being_kept() -> None:
    for check in (True, False):
        with BigQueryDouble.started(keep_rows=False, check=check) as double, calling(double) as caller:
            stream = caller.pend(caller.make("t", ID))
            caller.append(stream, message(id="int64"), {"id": 1}, {"id": 2}, offset=0)
            [answer] = caller.send([request(stream, message(id="int64"), b"\xff", offset=2)])
            assert bool(answer.row_errors) == check
            assert caller.write.finalize_write_stream(name=stream).row_count == double.counts.rows == 3 - check
            caller.commit(f"projects/{double.project}/datasets/{DATASET}/tables/t", stream)
            assert caller.rows("t") == []


@pytest.mark.long
def test_it_serves_in_a_separate_process() -> None:
    near, far = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(far,))
    process.start()
    far.close()
    endpoint, grpc_endpoint = near.recv()
    assert endpoint.startswith("http://127.0.0.1:")
    grpc.channel_ready_future(channel := grpc.insecure_channel(grpc_endpoint)).result(10)
    channel.close()
    near.send("counts")
    assert near.recv() == Counts()
    near.close()
    process.join(10)
    assert process.exitcode == 0
