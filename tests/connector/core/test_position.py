import base64
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.position import VERSION, Position, documents, positions
from connector.core.records import DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.envelope.envelope import EnvelopeBuilder, Source
from tests.connector.builders import AT, record

SOURCE = Source("p", "i", "d", "s", "d")
POSITION = Position("p/i/d/s", AT, "tx", "00000001", 3)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
somewhere = st.builds(
    Position, texts, st.integers(0, 2**62), texts, st.integers(0, 10**8).map("{:08d}".format), st.integers(0, 2**40)
)


@given(somewhere)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    text = position.to_text()
    assert Position.from_text(text) == Position.from_text(f" {text}\n") == position
    assert base64.b64decode(text, validate=True) == position.to_bytes()


def test_a_position_is_a_small_document_with_a_version() -> None:
    assert orjson.loads(POSITION.to_bytes()).keys() == {
        *("version", "stream", "commit_timestamp", "transaction", "record_sequence", "mod_index", "checksum"),
    }
    assert len(POSITION.to_bytes()) < 200


@given(st.integers(0, len(POSITION.to_text()) - 1), st.characters(codec="ascii"))
def test_a_position_of_which_a_character_has_changed_is_refused(at: int, character: str) -> None:
    text = POSITION.to_text()
    damaged = text[:at] + character + text[at + 1 :]
    try:
        assert Position.from_text(damaged) == POSITION
    except ValueError as error:
        assert str(error).startswith("it is not a valid position")  # noqa: PT017
    else:
        assert damaged.strip() == text


@pytest.mark.parametrize(
    "text",
    ["", "x", "é", "bnVsbA==", "W10=", "e30=", POSITION.to_text()[:-4], POSITION.to_text() * 2, "2026-01-02T03:04:05Z"],
)
def test_text_that_is_not_a_position_is_rejected_with_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it is not a valid position: [^\n]*$"):
        Position.from_text(text)


def test_a_position_of_a_newer_version_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.core.position.VERSION", VERSION + 1)
    newer = POSITION.to_text()
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"version {VERSION + 1}, newer than .* use the program that wrote it"):
        Position.from_text(newer)


instants = st.builds(
    lambda at, transaction, sequence, mods: record(
        commit_timestamp=AT + at,
        server_transaction_id=f"t{transaction}",
        record_sequence=f"{sequence:08d}",
        mods=(Mod('{"Id":"1"}', "{}", "{}"),) * mods,
    ),
    *(st.integers(0, 2) for _ in range(3)),
    st.integers(1, 3),
)


@given(st.lists(instants, min_size=1, max_size=8, unique_by=lambda record: record.order))
def test_positions_sort_in_commit_order_and_each_is_followed_by_exactly_the_rest(
    records: list[DataChangeRecord],
) -> None:
    builder = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")
    rows = builder.build(Changes.of(records).in_order(), SchemaRegistry(), 1)
    found = list(positions(rows))
    assert all(one.order < other.order for one, other in pairwise(found))
    assert list(documents(rows)) == [position.to_bytes() for position in found]
    assert list(positions(rows.slice(1))) == found[1:]
    for index, position in enumerate(found):
        assert position.rest_of(rows).equals(rows.slice(index + 1))
        assert position.rest_of(rows.slice(0, 0)).num_rows == 0


def test_a_position_is_the_same_on_every_replay() -> None:
    builder = EnvelopeBuilder(SOURCE, stream_name="another", read_method="another")
    (first,) = positions(builder.build(Changes.of([record()]), SchemaRegistry(), 1))
    again = record(read_timestamp=AT + 99, is_last_record_in_transaction_in_partition=False)
    (other,) = positions(builder.build(Changes.of([again]), SchemaRegistry(), 2))
    assert first.to_text() == other.to_text()
    assert first == Position("p/i/d/s", AT, "tx", "00000001", 0)
