from collections.abc import Sequence
from random import Random

import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from connector.spanner.decoding.chunks import ValueAssembler, merged
from emulator import Framing, Scenario
from emulator.scenario.history import PartitionMode
from emulator.scripted.change_records import row_encoder
from emulator.scripted.framing import chunks
from emulator.scripted.row_types import metadata
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, ask, engine, scenario
from tests.property.virtual_time import run

_PartialResultSet = types.PartialResultSet.pb()
_FRAMINGS = [Framing.plain(rows) for rows in (1, 3, 1000)] + [Framing.drawn(seed) for seed in range(8)]
_FRAMINGS += [
    *(Framing(seed, rows=rows, chunked=1.0, tokens=0.5, bare=0.2) for seed in range(4) for rows in (1, 4)),
]

_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


def _value(content: object) -> Value:
    if isinstance(content, list):
        return Value(list_value=ListValue(values=[_value(item) for item in content]))
    if content is None:
        return Value(null_value=0)
    if isinstance(content, bool):
        return Value(bool_value=content)
    return Value(string_value=content) if isinstance(content, str) else Value(number_value=content)


@given(_JSON, st.integers())
def test_the_chunks_of_any_value_merge_to_the_same_value(content: object, seed: int) -> None:
    first, *others = chunks(_value(content), Random(seed))
    for other in others:
        first = merged([first, other])
    assert first == _value(content)


def test_a_value_can_be_cut_between_and_inside_its_strings_and_lists() -> None:
    seen = {
        tuple(str(chunk).replace("\n", "") for chunk in chunks(_value([["ab"], ["c"], True]), Random(seed)))
        for seed in range(300)
    }
    assert len(seen) > 40


def test_a_number_cannot_be_cut() -> None:
    assert chunks(_value(1.5), Random(1)) == [_value(1.5)]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
@pytest.mark.parametrize("framing", _FRAMINGS, ids=str)
def test_every_framing_returns_the_same_rows(dialect: Dialect, mode: PartitionMode, framing: Framing) -> None:
    script = Scenario.generate(3, origin=ORIGIN, seconds=5, dialect=dialect, mode=mode, transactions=15)
    form = row_encoder(dialect, mode)
    rows = [form(change) for change in script.history.changes()]
    frames = framing.of_query(metadata(dialect, mode, "Everything"), "a query")
    messages = [_PartialResultSet.FromString(m) for part in (rows[:1], rows[1:]) for m in frames.messages(part)]
    _assert_framed(messages, [Value.FromString(row) for row in rows])
    assert frames.started == len(rows)
    assert list(frames.end()) == []


def _assert_framed(messages: Sequence[types.PartialResultSet], rows: list[Value]) -> None:
    assembler = ValueAssembler()
    values = [value for message in messages for value in assembler.values([message.SerializeToString()])]
    assert [Value.FromString(value) for value in values] == rows
    assert [message.HasField("metadata") for message in messages] == [True] + [False] * (len(messages) - 1)
    assert not messages[-1].chunked_value
    assert not any(message.chunked_value and message.resume_token for message in messages)


def test_a_plain_framing_puts_a_fixed_number_of_rows_and_a_resume_token_in_a_message() -> None:
    frames = Framing.plain(2).of_query(b"", "a query")
    messages = [_PartialResultSet.FromString(message) for message in frames.messages([b"\x20\x01"] * 5)]
    assert [len(message.values) for message in messages] == [2, 2, 1]
    assert all(message.resume_token for message in messages)


def test_a_drawn_framing_is_the_same_for_a_seed_and_differs_between_queries() -> None:
    rows = [_value(["a" * 50, "b" * 50]).SerializeToString()] * 20
    framing = Framing(1, rows=3, chunked=0.5, tokens=0.5, bare=0.1)
    again, other = (list(framing.of_query(b"", name).messages(rows)) for name in ("one", "other"))
    assert list(framing.of_query(b"", "one").messages(rows)) == again
    assert again != other


def test_a_drawn_framing_has_messages_without_rows_and_without_tokens() -> None:
    rows = [_value("abc").SerializeToString()] * 200
    framing = Framing(1, rows=2, chunked=0.3, tokens=0.5, bare=0.1)
    messages = [_PartialResultSet.FromString(m) for m in framing.of_query(b"", "x").messages(rows)]
    assert any(not message.values for message in messages)
    assert {bool(message.resume_token) for message in messages} == {True, False}
    assert any(message.chunked_value for message in messages)


def test_a_message_holds_at_least_one_row() -> None:
    with pytest.raises(ValueError, match="rows is 0"):
        Framing.plain(0)


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_the_connector_reads_the_same_from_every_framing(dialect: Dialect, mode: PartitionMode) -> None:
    script = scenario(dialect, mode)
    plain = run(ask(engine(script, now=12), "left", start=0, end=27))
    for framing in _FRAMINGS:
        framed = run(ask(engine(script, now=12, framing=framing), "left", start=0, end=27))
        assert framed.records == plain.records, framing
        assert framed.ok
