"""A replay is a change stream: distinct records in commit order, as many as requested."""

import pytest

from benchmarks.replay.messages import BLOCK, FRAMINGS, START, Replay, Span
from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.records import ChildPartitionsRecord, DataChangeRecord, Record
from connector.spanner.decoding.decoder import decoder
from tests.benchmarks.query import answer

DIALECTS = {"googlesql": GOOGLESQL, "postgresql": POSTGRESQL}


def records(replay: Replay, span: Span, token: str | None, start: int = START) -> list[Record]:
    found: list[Record] = []
    for item in decoder(DIALECTS[replay.dialect], IMMUTABLE)()(answer(replay, span, token, start), 0):
        found += item.records() if isinstance(item, Changes) else [item]
    return found


@pytest.mark.long(but=2)
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_records_are_distinct_and_in_commit_order_beyond_a_second(dialect: str, framing: str) -> None:
    replay = Replay(dialect, framing)
    _, size = FRAMINGS[framing]
    span = replay.span((BLOCK[size] + 32) * size)
    found = records(replay, span, replay.tokens[0])
    assert all(isinstance(record, DataChangeRecord) for record in found)
    data = [record for record in found if isinstance(record, DataChangeRecord)]
    commits = [record.commit_timestamp for record in data]
    assert commits == sorted(set(commits))
    assert commits[0] == START
    assert commits[-1] == span.end
    assert len({record.server_transaction_id for record in data}) == len(data)
    keys = [mod.keys for record in data for mod in record.mods]
    assert len(set(keys)) == len(keys) == span.mods


def test_partitions_share_the_mods_and_no_key() -> None:
    replay = Replay("googlesql", "1/msg", partitions=2)
    span = replay.span(1000)
    assert span.mods == 1000
    found = [records(replay, span, token) for token in replay.tokens]
    keys = {
        mod.keys for part in found for record in part if isinstance(record, DataChangeRecord) for mod in record.mods
    }
    assert len(keys) == 1000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_initial_query_announces_the_partitions(dialect: str) -> None:
    replay = Replay(dialect, "1/msg", partitions=2)
    found = records(replay, replay.span(1), None)
    announced = [record for record in found if isinstance(record, ChildPartitionsRecord)]
    assert announced == found
    assert [child.token for record in announced for child in record.children] == list(replay.tokens)
    assert {record.start_timestamp for record in announced} == {START}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(
    "later", [0, 999, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 7_000_000, 1_000_000_000))]
)
def test_a_query_that_starts_later_misses_nothing_from_then_on(framing: str, later: int) -> None:
    replay = Replay("googlesql", framing)
    _, size = FRAMINGS[framing]
    span = replay.span((BLOCK[size] + 32) * size)
    start = START + later
    whole = [record for record in records(replay, span, replay.tokens[0]) if commit(record) >= start]
    found = records(replay, span, replay.tokens[0], start)
    assert found[-len(whole) :] == whole
    assert len(found) - len(whole) < FRAMINGS[framing][0]  # of the message that has the first of them


def commit(record: Record) -> int:
    assert isinstance(record, DataChangeRecord)
    return record.commit_timestamp
