"""Epochs, schemas and filters are the same for columns of records, for single records, and in a simple model."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer, IncompleteTransaction, incomplete_transactions, minute_end
from connector.core.filters import RecordFilter
from connector.core.records import DataChangeRecord
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import MINUTE
from tests.connector.builders import AT, COLUMNS
from tests.property.effort import effort
from tests.property.reading import mutants
from tests.property.some_records import TABLES, records

TOKENS = ("p", "q", "r")
STEPS = (0, 0, 0, 1, 1, 2, 1000, MINUTE // 2, MINUTE - 1, MINUTE)
START = AT - AT % MINUTE + MINUTE - 3
"""Shortly before the end of a minute."""


class Fed:
    """Two buffers that are fed with the same records: ``loose`` one by one, ``columns`` in blocks.

    Raises:
        AssertionError: they differ.
    """

    def __init__(self, max_bytes: int, buffer_type: type[EpochBuffer] = EpochBuffer) -> None:
        self.loose = EpochBuffer(START, max_bytes=max_bytes)
        self.columns = buffer_type(START, max_bytes=max_bytes)
        self.delivered: list[DataChangeRecord] = []
        self.last = dict.fromkeys(TOKENS, START)
        """Each partition's last commit timestamp."""
        self.held = {token: [START] for token in TOKENS}
        """The newest commit timestamp of each partition."""
        self.progress = dict.fromkeys(TOKENS, START)
        self.watermark = START

    def add(self, token: str, block: list[DataChangeRecord], *, as_columns: bool) -> None:
        progress = self.progress[token]
        held = [one for one in block if self.loose.add(token, one, progress=progress)]
        late = [one for one in block if progress < one.commit_timestamp <= self.watermark]
        assert held == [one for one in block if one.commit_timestamp > max(progress, self.watermark)]
        if as_columns:
            found = self.columns.add_all(token, Changes.of(block), progress=progress)
            assert [part.records() for part in found] == [tuple(held), tuple(late)]
        else:
            assert [one for one in block if self.columns.add(token, one, progress=progress)] == held
        self.held[token] = [one.commit_timestamp for one in held] or self.held[token]
        self.last[token] = max(self.last[token], self.held[token][-1])

    def prove(self, token: str, instant: int) -> None:
        self.progress[token] = max(self.progress[token], instant)

    def discard(self, token: str) -> None:
        for buffer in (self.loose, self.columns):
            buffer.discard(token, beyond=self.progress[token])
        self.last[token] = min(self.last[token], self.progress[token])

    def advance(self, watermark: int, *, proven: bool) -> None:
        """``proven``: as it should be, no partition's progress is before it, so that nothing can come too late."""
        for buffer in (self.loose, self.columns):
            buffer.advance(watermark)
        self.watermark = max(self.watermark, watermark)
        if proven:
            for token in TOKENS:
                self.prove(token, watermark)

    def take(self) -> bool:
        loose, columns = self.loose.take(), self.columns.take()
        assert (loose is None) == (columns is None)
        if loose is None or columns is None:
            return False
        assert (columns.low, columns.high, columns.bytes) == (loose.low, loose.high, loose.bytes)
        assert columns.records == columns.changes.records() == loose.records == loose.changes.records()
        assert columns.bytes == sum(one.size for one in columns.records)
        self.delivered += columns.records
        return True

    def check(self) -> None:
        for name in ("bytes", "ready_bytes", "overdue"):
            assert getattr(self.columns, name) == getattr(self.loose, name), name


@st.composite
def blocks(draw: st.DrawFn, fed: Fed, token: str) -> list[DataChangeRecord]:
    """Records of a partition in the order of their commit timestamps; the first may be known, or too late."""
    at = fed.last[token]
    if at <= max(fed.progress[token], fed.watermark):
        at = max(fed.progress[token], fed.watermark) - draw(st.sampled_from((0, 0, 1, 3, MINUTE)))
    block = []
    for one in draw(st.lists(records, min_size=1, max_size=6)):
        at += draw(st.sampled_from(STEPS))
        block.append(replace(one, commit_timestamp=at))
    return block


sizes = st.sampled_from((1, 40, 60, 200, 10**9))


@effort(200)
@given(st.data(), sizes)
def test_epochs_of_blocks_are_those_of_single_records(data: st.DataObject, max_bytes: int) -> None:
    feed(data, Fed(max_bytes))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mutant", mutants.OF_COLUMNS)
def test_a_broken_rule_of_columns_is_detected(mutant: type[EpochBuffer]) -> None:
    @settings(effort(1000), max_examples=1000, phases=[Phase.generate])
    @given(st.data(), sizes)
    def differs(data: st.DataObject, max_bytes: int) -> None:
        feed(data, Fed(max_bytes, mutant))

    with pytest.raises(AssertionError):
        differs()


def feed(data: st.DataObject, fed: Fed) -> None:
    for _ in range(data.draw(st.integers(1, 12))):
        token = data.draw(st.sampled_from(TOKENS))
        match data.draw(st.sampled_from(("add", "add", "prove", "break", "advance", "take"))):
            case "add":
                block = data.draw(blocks(fed, token))
                fed.add(token, block, as_columns=data.draw(st.sampled_from((True, True, False))))
            case "prove" | "break" as how:
                fed.prove(token, data.draw(st.sampled_from(fed.held[token])) - data.draw(st.integers(0, 1)))
                if how == "break":
                    fed.discard(token)
            case "advance":
                fed.advance(fed.watermark + data.draw(st.sampled_from(STEPS)), proven=data.draw(st.booleans()))
            case "take":
                fed.take()
        fed.check()
    fed.advance(max(fed.last.values()), proven=True)
    while fed.take():
        fed.check()
    assert (fed.columns.bytes, fed.columns.ready_bytes) == (0, 0)
    assert fed.delivered == sorted(fed.delivered, key=lambda one: one.order)


def epochs_of(some: list[DataChangeRecord], low: int, high: int, max_bytes: int) -> Iterator[list[DataChangeRecord]]:
    """Told plainly: instants are put together while they are of one minute and have room; an epoch has one at least."""
    instants = [
        list(group) for _, group in groupby(sorted(some, key=lambda one: one.order), lambda o: o.commit_timestamp)
    ]
    while low < high:
        end = min(high, minute_end(low + 1))
        epoch: list[DataChangeRecord] = []
        while instants and instants[0][0].commit_timestamp <= end:
            if epoch and sum(one.size for one in [*epoch, *instants[0]]) > max_bytes:
                end = epoch[-1].commit_timestamp
                break
            epoch += instants.pop(0)
        yield epoch
        low = end


@effort(200)
@given(st.lists(st.lists(st.tuples(records, st.sampled_from(STEPS)), max_size=6), max_size=3), st.integers(1, 200))
def test_epochs_of_blocks_are_those_of_the_simple_model(
    drawn: list[list[tuple[DataChangeRecord, int]]], max_bytes: int
) -> None:
    buffer = EpochBuffer(START, max_bytes=max_bytes)
    every: list[DataChangeRecord] = []
    for number, steps in enumerate(drawn):
        at, block = START + 1, []
        for one, step in steps:
            at += step
            transaction = f"{one.server_transaction_id}{number}"  # two partitions do not share a record sequence
            block.append(replace(one, commit_timestamp=at, server_transaction_id=transaction))
        if block:
            buffer.add_all(str(number), Changes.of(block), progress=START)
            every += block
    high = max((one.commit_timestamp for one in every), default=START)
    buffer.advance(high)
    taken = list(iter(buffer.take, None))
    assert [list(epoch.records) for epoch in taken] == list(epochs_of(every, START, high, max_bytes))
    assert [epoch.low for epoch in taken] == [START, *(epoch.high for epoch in taken)][: len(taken)]


@effort(200)
@given(st.lists(records, max_size=10))
def test_transactions_with_fewer_records_than_they_declare_are_incomplete(some: list[DataChangeRecord]) -> None:
    ordered = sorted(some, key=lambda one: one.order)
    wanted = []
    for (at, transaction), group in groupby(ordered, lambda one: (one.commit_timestamp, one.server_transaction_id)):
        *_, last = received = list(group)
        if last.number_of_records_in_transaction != len(received):
            expected = last.number_of_records_in_transaction
            wanted.append(IncompleteTransaction(transaction, at, expected, len(received)))
    changes = Changes.of([*ordered, *ordered]).part(len(ordered))
    assert incomplete_transactions(changes) == wanted


patterns = st.lists(st.sampled_from(("*", "S*", "music.*", "*b*", "", "x")), max_size=2)


@effort(150)
@given(
    st.lists(records, max_size=8),
    patterns,
    patterns,
    st.lists(st.sampled_from(("loop=", "app=x", "y", "")), max_size=2),
)
def test_records_of_the_selected_tables_and_tags_are_kept(
    some: list[DataChangeRecord], include: list[str], exclude: list[str], tags: list[str]
) -> None:
    def keeps(one: DataChangeRecord) -> bool:
        included = not include or any(fnmatchcase(one.table_name, pattern) for pattern in include)
        excluded = any(fnmatchcase(one.table_name, pattern) for pattern in exclude)
        return included and not excluded and not any(one.transaction_tag.startswith(tag) for tag in tags)

    changes = Changes.of([*some, *some]).part(len(some))
    kept = RecordFilter(include, exclude, tags)(changes)
    assert kept.records() == tuple(one for one in some if keeps(one))


@effort(150)
@given(st.lists(st.lists(records, max_size=6), max_size=4))
def test_a_registry_observes_the_same_of_columns_as_of_single_records(parts: list[list[DataChangeRecord]]) -> None:
    plain, columns = SchemaRegistry(), SchemaRegistry()
    for registry in (plain, columns):
        registry.observe(TABLES[0], COLUMNS)
    for part in parts:
        wanted = [plain.observe(one.table_name, one.column_types) for one in part]
        schemas, numbers = columns.observed(Changes.of(part))
        assert [schemas[number] for number in numbers.tolist()] == wanted
        assert len({key for _, key in schemas}) == len(schemas)
        assert columns.keys == plain.keys
        assert columns.schemas == plain.schemas
