"""Messages between a coordinator and its workers come out as they went in."""

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.address import DatabaseAddress
from connector.core.changes import Changes
from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import StreamAddress
from connector.spanner.workers.frames import (
    FEW,
    HEADER,
    Ack,
    Alive,
    BytesLike,
    Cancel,
    Ended,
    Failed,
    FailureFrame,
    Frame,
    Message,
    Packer,
    Ready,
    RowsFrame,
    StartFrame,
    Unpacker,
    WorkerSetup,
    framed,
    parsed,
)
from tests.connector.builders import record

instants = st.integers(-(2**60), 2**62)
counts = st.integers(0, 2**40)
texts = st.text(max_size=12)
columns = st.builds(ColumnType, texts, texts, st.booleans(), counts)
data = st.builds(
    DataChangeRecord,
    commit_timestamp=instants,
    record_sequence=texts,
    server_transaction_id=texts,
    is_last_record_in_transaction_in_partition=st.booleans(),
    table_name=texts,
    column_types=st.lists(columns, max_size=3).map(tuple),
    mods=st.lists(st.builds(Mod, texts, texts, texts), max_size=3).map(tuple),
    mod_type=texts,
    value_capture_type=texts,
    number_of_records_in_transaction=counts,
    number_of_partitions_in_transaction=counts,
    transaction_tag=texts,
    is_system_transaction=st.booleans(),
    read_timestamp=instants,
    size=counts,
)
children = st.builds(ChildPartition, texts.filter(bool), st.frozensets(texts, max_size=3))
others = (
    st.builds(HeartbeatRecord, instants)
    | st.builds(ChildPartitionsRecord, instants, texts, st.lists(children, min_size=1, max_size=3).map(tuple))
    | st.builds(PartitionStartRecord, instants, st.lists(texts, max_size=3).map(tuple))
    | st.builds(PartitionEndRecord, instants)
    | st.builds(PartitionEventRecord, instants, counts)
)
items: st.SearchStrategy[list[Item]] = st.lists(data | others | st.lists(data, min_size=1).map(Changes.of), max_size=12)


def received(buffers: list[BytesLike]) -> Frame:
    """The frame whose bytes these are."""
    raw = b"".join(buffers)
    size, body_size = HEADER.unpack(raw[: HEADER.size])
    message, body = raw[HEADER.size : HEADER.size + size], raw[HEADER.size + size :]
    assert len(body) == body_size
    return parsed(message, pa.py_buffer(body) if body else None)


def sent_through(packer: Packer, unpacker: Unpacker, sent: list[Item]) -> list[Item]:
    frame = received(packer.rows(7, sent, 123))
    assert isinstance(frame.message, RowsFrame)
    assert (frame.message.query, frame.message.size) == (7, 123)
    return unpacker.items(frame.message, frame.body)


def as_records(found: list[Item]) -> list[Record]:
    return [each for item in found for each in (item.records() if isinstance(item, Changes) else [item])]


@given(st.lists(items, max_size=4))
def test_rows_are_received_as_they_were_sent_be_they_records_or_columns(frames: list[list[Item]]) -> None:
    packer, unpacker = Packer(), Unpacker()
    for sent in frames:
        assert as_records(sent_through(packer, unpacker, sent)) == as_records(sent)


@given(st.lists(data, min_size=FEW + 1, max_size=FEW + 9), st.lists(data, min_size=1, max_size=9))
def test_neighbouring_data_is_one_batch_whose_values_stay_where_they_were_received(
    loose: list[DataChangeRecord], columned: list[DataChangeRecord]
) -> None:
    frame = received(Packer().rows(1, [HeartbeatRecord(1), *loose, Changes.of(columned), HeartbeatRecord(2)], 0))
    assert isinstance(frame.message, RowsFrame)
    first, changes, last = Unpacker().items(frame.message, frame.body)
    assert isinstance(changes, Changes)
    assert (first, changes.records(), last) == (HeartbeatRecord(1), (*loose, *columned), HeartbeatRecord(2))
    values = changes.column("commit_timestamp").buffers()[1]
    assert frame.body is not None
    assert frame.body.address <= values.address < frame.body.address + frame.body.size


@given(st.lists(data, max_size=FEW))
def test_few_data_change_records_stay_as_they_are(loose: list[DataChangeRecord]) -> None:
    assert sent_through(Packer(), Unpacker(), [*loose]) == loose


def test_repeated_record_schemas_are_parsed_once() -> None:
    packer, unpacker = Packer(), Unpacker()
    sent = Changes.of([record(), record(table_name="Albums")])
    first, again = (sent_through(packer, unpacker, [part])[0] for part in (sent.part(0, 1), sent.part(1, 2)))
    assert isinstance(first, Changes)
    assert isinstance(again, Changes)
    assert all(one is other for one, other in zip(first.record_schemas, again.record_schemas, strict=True))


@pytest.mark.long
def test_the_cache_of_record_schemas_is_bounded() -> None:
    packer, unpacker = Packer(), Unpacker()
    columns = [ColumnType(f"{'c' * 200}{number}", "STRING", False, number) for number in range(200)]
    tracemalloc.start()
    try:
        for number in range(2_000):
            sent_through(
                packer,
                unpacker,
                [
                    Changes.of(
                        [record(column_types=(*columns[:100], columns[number % 100 + 100]), table_name=f"T{number}")]
                    )
                ],
            )
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000_000


addresses = st.builds(DatabaseAddress, texts, texts, texts, st.none() | texts, st.none() | texts, st.none() | texts)
messages = (
    st.builds(
        WorkerSetup,
        st.builds(StreamAddress, addresses, texts, texts, texts, texts, counts),
        st.booleans(),
        st.booleans(),
    )
    | st.builds(StartFrame, counts, texts, texts, st.none() | texts, counts)
    | st.builds(Ack, counts, counts)
    | st.builds(Cancel, counts)
    | st.builds(Ready)
    | st.builds(Alive)
    | st.builds(Failed, st.builds(FailureFrame, st.just("known"), texts, texts, texts))
    | st.builds(Ended, counts, st.none() | st.builds(FailureFrame, st.just("call"), texts))
)


@given(messages)
def test_every_other_message_is_received_as_it_was_sent(message: Message) -> None:
    assert received(framed(message)) == Frame(message, None)  # type: ignore[arg-type]
