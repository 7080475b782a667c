"""The official emulator and the scripted server serve change streams alike, as the connector expects them."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from connector.core.records import ChildPartitionsRecord, DataChangeRecord, HeartbeatRecord, Record
from connector.core.timestamps import SECOND
from tests.emulator.caller import Answer, Asked
from tests.emulator.subjects import ReadPartition, Subject, children_of
from tests.integration.delivered import canonical

Pair = tuple[Subject, Subject]
MILLISECOND = SECOND // 1000


def timestamp_of(record: Record) -> int:
    """The timestamp by which a record is ordered in its partition."""
    match record:
        case DataChangeRecord(commit_timestamp=at) | HeartbeatRecord(timestamp=at):
            return at
        case ChildPartitionsRecord(start_timestamp=at):
            return at
    raise AssertionError(record)


def without_heartbeats(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if not isinstance(record, HeartbeatRecord)]


def finished(subject: Subject) -> list[ReadPartition]:
    """Returns the partitions that ended before the subject's end."""
    return [partition for partition in subject.read_partitions().values() if partition.announced]


def test_the_initial_query_returns_the_partitions_that_cover_its_start_without_parents_and_ends(
    subject: Subject,
) -> None:
    for start in (subject.start, (subject.start + subject.end) // 2, subject.end):
        answer = subject.caller.query(None, start)  # which has no end, and ends
        children = children_of(answer.records)
        assert len({child.token for child, _ in children}) == len(children) > 0
        assert {(child.parents, at) for child, at in children} == {(frozenset(), start)}
        assert all(isinstance(record, ChildPartitionsRecord) for record in answer.records)
        for child, _ in children:
            assert subject.caller.query(child.token, start, start).code is grpc.StatusCode.OK


def test_following_the_partitions_returns_every_committed_mod_once(subject: Subject) -> None:
    found = Counter(
        (change.commit_timestamp, change.table_name, change.mod_type, _text(mod.keys), _text(mod.new_values))
        for partition in subject.read_partitions().values()
        for change in partition.changes
        for mod in change.mods
    )
    committed = Counter(
        (mod.commit_timestamp_ns, mod.table, mod.mod_type, canonical(mod.keys), canonical(mod.row))
        for mod in subject.committed
    )
    assert found == committed


def _text(row: str) -> str:
    return canonical(json.loads(row))


@pytest.mark.long(but=2)
def test_a_partition_ends_with_its_children_who_name_all_their_parents_and_start_where_these_end(
    subject: Subject,
) -> None:
    partitions = subject.read_partitions()
    churn: Counter[str] = Counter()
    for partition in partitions.values():
        assert partition.parents <= set(partitions)
        for parent in partition.parents:
            assert {record.start_timestamp for record in partitions[parent].announced} == {partition.start}
            assert partition.token in {child.token for child, _ in children_of(list(partitions[parent].records))}
        churn["merges"] += len(partition.parents) > 1
    for partition in finished(subject):
        records = without_heartbeats(partition.records)
        assert all(isinstance(record, ChildPartitionsRecord) for record in records[-len(partition.announced) :])
        assert len({record.start_timestamp for record in partition.announced}) == 1
        churn["splits"] += len(children_of(list(partition.announced))) > 1
    assert churn["splits"] > 0
    assert churn["merges"] > 0


def test_records_are_in_order_and_within_the_bounds_of_their_partition_and_query(subject: Subject) -> None:
    for partition in subject.read_partitions().values():
        order = [timestamp_of(record) for record in partition.records]
        assert order == sorted(order)
        assert all(partition.start <= at <= subject.end for at in order)
        changes: dict[str, list[int]] = {}
        for change in partition.changes:
            changes.setdefault(change.server_transaction_id, []).append(int(change.record_sequence))
        for sequences in changes.values():
            assert sequences == sorted(set(sequences))


def test_a_transaction_has_as_many_records_as_it_says_and_its_last_one_in_each_partition(subject: Subject) -> None:
    records: dict[str, list[tuple[str, DataChangeRecord]]] = {}
    for partition in subject.read_partitions().values():
        for change in partition.changes:
            records.setdefault(change.server_transaction_id, []).append((partition.token, change))
    for found in records.values():
        tokens = {token for token, _ in found}
        assert {change.number_of_records_in_transaction for _, change in found} == {len(found)}
        assert {change.number_of_partitions_in_transaction for _, change in found} == {len(tokens)}
        assert {change.commit_timestamp for _, change in found} == {found[0][1].commit_timestamp}
        assert sum(change.is_last_record_in_transaction_in_partition for _, change in found) == len(tokens)


def test_a_partitions_records_are_the_same_whenever_it_is_read(subject: Subject) -> None:
    for partition in finished(subject):
        again = subject.caller.query(partition.token, partition.start).records  # without an end it ends too
        assert without_heartbeats(again) == without_heartbeats(partition.records)


def test_both_bounds_of_a_query_are_inclusive(subject: Subject) -> None:
    partition = max(subject.read_partitions().values(), key=lambda partition: len(partition.changes))
    at = [change.commit_timestamp for change in partition.changes]
    first, last = at[len(at) // 3], at[2 * len(at) // 3]
    for start, end in ((first, last), (first, first), (first + 1, last - 1)):
        records = without_heartbeats(subject.caller.query(partition.token, start, end).records)
        assert records == [change for change in partition.changes if start <= change.commit_timestamp <= end]


def outlived(subject: Subject, span: int, heartbeat: int = 1000) -> tuple[int, int, list[Answer]]:
    """Queries of living partitions, from now on for `span`: start, end, and the answers of those that outlive them."""
    for _ in range(8):  # each may have given way to others meanwhile
        start = subject.caller.now()
        end = start + span
        alive = children_of(subject.caller.query(None, start).records)
        answers = subject.caller.ask_together(Asked(child.token, start, end, heartbeat) for child, _ in alive)
        living = [
            answer
            for answer in answers
            if not any(isinstance(record, ChildPartitionsRecord) for record in answer.records)
        ]
        if living:
            return start, end, living
    raise AssertionError("no partition exists for long")


def beating(subject: Subject, heartbeat: int, *, least: int) -> tuple[int, int, list[Answer]]:
    """As `outlived`, for as long as each answer needs for so many heartbeats, which come late on a busy machine."""
    for doubled in range(8):
        start, end, answers = outlived(subject, (least + 1) * heartbeat * MILLISECOND << doubled, heartbeat)
        if all(len(heartbeats(answer)) >= least for answer in answers):
            return start, end, answers
    raise AssertionError("heartbeats are rare")


def heartbeats(answer: Answer) -> list[int]:
    """The timestamps of the heartbeats in an answer."""
    return [record.timestamp for record in answer.records if isinstance(record, HeartbeatRecord)]


def test_a_query_with_an_end_in_the_future_ends_when_that_time_has_come(subject: Subject) -> None:
    start, end, answers = outlived(subject, 700 * MILLISECOND)
    assert subject.caller.now() >= end
    assert all(start <= timestamp_of(record) <= end for answer in answers for record in answer.records)


def test_a_query_whose_start_is_to_come_waits_for_it(subject: Subject) -> None:
    start = subject.caller.now() + 300 * MILLISECOND
    children = children_of(subject.caller.query(None, start).records)
    assert subject.caller.now() >= start
    assert {at for _, at in children} == {start}


@pytest.mark.long(but=3)
@pytest.mark.parametrize("heartbeat", [150, 400])
def test_a_silent_partition_sends_heartbeats_at_their_interval_each_later_than_the_one_before(
    heartbeat: int, subject: Subject
) -> None:
    start, end, answers = beating(subject, heartbeat, least=2)
    for answer in answers:
        beats = heartbeats(answer)
        assert all(start <= beat <= end for beat in beats)
        gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
        assert all(gap >= heartbeat * MILLISECOND for gap in gaps[:-1])  # the last may be the end's
        assert all(gap > 0 for gap in gaps)


def _documents(subject: Subject, answer: Answer) -> Iterable[tuple[str, object]]:
    """Yields each record's kind, and its content as JSON."""
    for (value,) in answer.rows:
        node = MessageToDict(value)
        if subject.sample.dialect == "postgresql":
            ((kind, record),) = json.loads(node).items()
            yield str(kind), record
            continue
        for structs in node:
            for kind, records in zip(("data", "heartbeat", "children"), structs, strict=True):
                yield from ((kind, record) for record in records)


def _structure(node: object, name: str = "") -> object:
    """Returns a document's structure: names and types of values, those of a list once each."""
    if name in ("keys", "new_values", "old_values"):
        return "row of " + type(node).__name__
    if isinstance(node, dict):
        return tuple(sorted((key, _structure(value, key)) for key, value in node.items()))
    if isinstance(node, list):
        shapes = [_structure(item) for item in node]
        is_array = len({type(item) for item in node}) < 2
        return ("array", *sorted(set(shapes), key=repr)) if is_array else ("struct", *shapes)
    return type(node).__name__


def _structures(subject: Subject) -> dict[str, set[object]]:
    """Returns the structures of records by their kind."""
    asked = [Asked(partition.token, partition.start, subject.end) for partition in finished(subject)]
    asked.append(Asked(None, subject.start))
    shapes: dict[str, set[object]] = {}
    for answer in [*subject.caller.ask_together(asked), *beating(subject, 100, least=1)[2]]:
        for kind, record in _documents(subject, answer):
            shapes.setdefault(kind, set()).add(_structure(record))
    return shapes


@pytest.mark.long(but=1)
@pytest.mark.emulator
def test_records_have_the_same_values_on_both_servers(pair: Pair) -> None:
    official, scripted = (_structures(subject) for subject in pair)
    assert len(official) == 3
    assert official == scripted


@pytest.mark.emulator
def test_records_list_the_same_columns_on_both_servers(pair: Pair) -> None:
    official, scripted = (
        {
            (change.table_name, change.mod_type, change.value_capture_type, change.column_types)
            for partition in subject.read_partitions().values()
            for change in partition.changes
        }
        for subject in pair
    )
    assert {entry[0] for entry in official} == {table.name for table in pair[0].sample.tables}
    assert {entry[1] for entry in official} == {"INSERT", "UPDATE", "DELETE"}
    both = {entry[:2] for entry in official} & {entry[:2] for entry in scripted}
    assert len(both) > 10
    assert {entry for entry in official if entry[:2] in both} == {entry for entry in scripted if entry[:2] in both}
