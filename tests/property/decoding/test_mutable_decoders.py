"""In the MUTABLE_KEY_RANGE mode the column decoder gives the same records as the row decoder, or declines the rows.

Rows are arbitrary bytes here, and the two must agree on all of them. For a campaign:
``PROPERTY_EXAMPLES=10000 DAMAGED_SEEDS=100000 pytest --run-long tests/property/decoding/test_mutable_decoders.py``.
"""

import os
from collections import Counter
from contextlib import AbstractContextManager
from functools import cache
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.spanner.decoding import mod_values
from connector.spanner.decoding.decoder import FEW
from emulator.scripted.wire import FALSE, field, listed, number_field, text
from tests.property.decoding import mutants
from tests.property.decoding.change_rows import AT, Node
from tests.property.decoding.damage import damaged, garbled
from tests.property.decoding.framed import framed, lists, message
from tests.property.decoding.mutable_rows import (
    ANY,
    ODD,
    ODD_VALUES,
    TABLES,
    TYPICAL,
    VALUES,
    Spread,
    data,
    in_base64,
    mod_value,
    odd_rows,
    others,
    rows,
    timestamp,
)
from tests.property.decoding.two_ways import MUTABLE_SIDE, UNKNOWN, Lists, check, fast_items
from tests.property.effort import effort, share_of

SEEDS = int(os.environ.get("DAMAGED_SEEDS", share_of(1000)))
FEWS = (0, 2000, FEW)
AT_ONCE = (1, 200, mod_values._AT_ONCE)
"""Bytes of mods that are converted together: one mod, some mods, and the default."""


@st.composite
def answers(draw: st.DrawFn, spread: Spread) -> list[list[bytes]]:
    """Draws the answer to a query, in the lists in which a decoder receives it."""
    nodes: list[Node] = [in_base64(row) for row in draw(rows(spread))]
    return draw(lists(draw(framed(nodes, MUTABLE_SIDE.metadata))))


def answered(*some: bytes) -> Lists:
    """Returns an answer with these rows in one message."""
    return [[message([in_base64(row) for row in some], metadata=MUTABLE_SIDE.metadata)], []]


def are_columns(given: Lists) -> bool:
    return all(isinstance(item, Changes) for item in fast_items(MUTABLE_SIDE, given))


def at_once(most: int) -> AbstractContextManager[object]:
    return patch.object(mod_values, "_AT_ONCE", most)


@effort(150)
@given(st.data(), st.sampled_from(AT_ONCE))
def test_typical_records_become_columns_whatever_their_framing(drawn: st.DataObject, most: int) -> None:
    given = drawn.draw(answers(TYPICAL))
    with at_once(most):
        wanted = check(MUTABLE_SIDE, given)
        assert are_columns(given)
        assert len(fast_items(MUTABLE_SIDE, given)) == sum(map(bool, wanted))


@effort(250)
@given(st.data(), st.sampled_from(FEWS))
def test_both_decoders_give_the_same_records_of_any_kind_and_order(drawn: st.DataObject, few: int) -> None:
    check(MUTABLE_SIDE, drawn.draw(answers(ANY)), few)


@pytest.mark.long
@effort(400)
@given(st.data(), st.sampled_from(AT_ONCE))
def test_both_decoders_agree_on_records_that_no_writer_makes(drawn: st.DataObject, most: int) -> None:
    given = drawn.draw(answers(ODD))
    with at_once(most):
        check(MUTABLE_SIDE, given)


def record(*mods: bytes, columns: tuple[bytes, ...] = TABLES[0][1], at: int = AT) -> bytes:
    content = [
        field(2, b"1"),
        field(3, b"tx"),
        field(5, b"T"),
        *(field(6, column) for column in columns),
        *(field(7, mod) for mod in mods),
        b"\x40\x0a\x48\x0a",
    ]
    return field(1, field(1, timestamp(at)) + b"".join(content))


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_the_same_in_any_place(value: bytes) -> None:
    one, another = mod_value(0, value), mod_value(2, text("b"))
    given = answered(
        *(record(field(payload, one)) for payload in (1, 2, 3)),
        *(record(field(payload, one) + field(payload, another), b"") for payload in (1, 2, 3)),
        *(record(field(payload, another) + field(payload, mod_value(4, value))) for payload in (1, 2, 3)),
        record(b"", field(1, one) + field(2, one) + field(3, one), b""),
    )
    check(MUTABLE_SIDE, given)
    assert are_columns(given)


@pytest.mark.long(but=12)
@pytest.mark.parametrize("value", ODD_VALUES)
def test_both_decoders_agree_on_an_odd_value_and_its_neighbours(value: bytes) -> None:
    typical = record(field(1, mod_value(0, text("1"))))
    for odd in (mod_value(1, value), mod_value(0, value), value):
        check(MUTABLE_SIDE, answered(typical, record(field(3, odd)), typical))
        check(MUTABLE_SIDE, answered(typical, record(field(3, odd) + field(3, mod_value(2, FALSE))), typical))
        check(MUTABLE_SIDE, [*answered(typical), [message([in_base64(record(field(3, odd)))])], *answered(typical)])


def test_lists_are_read_up_to_the_depth_that_a_parser_allows() -> None:
    rejected = []
    value = text("1")
    for _ in range(60):
        rejected.append([UNKNOWN] in check(MUTABLE_SIDE, answered(record(field(3, mod_value(1, value))))))
        value = listed([value])
    assert rejected == sorted(rejected)
    assert set(rejected) == {True, False}


@pytest.mark.parametrize("number", range(len(odd_rows(AT, data(Random(1))))))
def test_both_decoders_agree_on_an_odd_row_and_its_neighbours(number: int) -> None:
    typical = record(field(1, mod_value(0, text("1"))))
    odd = odd_rows(AT, data(Random(1)))[number]
    check(MUTABLE_SIDE, answered(typical, odd, typical))
    for beside in odd_rows(AT, data(Random(1))):
        check(MUTABLE_SIDE, answered(odd, beside))


def test_another_kind_of_record_is_returned_between_columns() -> None:
    typical = record(field(1, mod_value(0, text("1"))))
    for other in others(AT):
        found = fast_items(MUTABLE_SIDE, answered(typical, other, typical))
        assert [isinstance(item, Changes) for item in found] == [True, False, True]


def test_both_decoders_agree_on_column_indexes_that_are_out_of_range_or_repeated() -> None:
    columns = TABLES[0][1]
    for first in range(7):
        for second in range(7):
            mod = field(3, mod_value(first, text("a"))) + field(3, mod_value(second, text("b")))
            check(MUTABLE_SIDE, answered(record(field(1, mod_value(0, text("1"))), mod)))
            twice = columns[:2] * 2
            check(MUTABLE_SIDE, answered(record(mod, columns=twice)))
    check(MUTABLE_SIDE, answered(record(field(3, number_field(1, 2**64 - 1) + field(2, text("a"))))))


@pytest.mark.parametrize("odd", ["", "=", "AAAA=", "AA=A", "A", "AAA", "A\nAAA", "ä", "AA-_", "CgA", "CgA=", "CgA=="])
def test_a_row_that_is_not_base64_is_rejected(odd: str) -> None:
    given = [[message([in_base64(record()), odd], metadata=MUTABLE_SIDE.metadata)]]
    assert [UNKNOWN] in check(MUTABLE_SIDE, given)


@pytest.mark.parametrize("odd", [None, True, 1.5, [], ["CgA="]])
def test_both_decoders_agree_on_a_row_that_is_not_a_string(odd: Node) -> None:
    check(MUTABLE_SIDE, [[message([in_base64(record()), odd, in_base64(record())], metadata=MUTABLE_SIDE.metadata)]])


@cache
def pool() -> list[bytes]:
    random = Random(5)
    found = [data(random).row(AT + number) for number in range(60)]
    return [*found, *others(AT)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("within", ["the record", "the text"])
def test_both_decoders_agree_on_damaged_rows(within: str) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        random = Random(f"{seed} of {within}")
        some = random.choices(pool(), k=random.choice((1, 1, 3, 16)))
        nodes: list[Node] = [in_base64(row) for row in some]
        at = random.randrange(len(some))
        if within == "the record":
            nodes[at] = in_base64(damaged(random, some[at], random.choice(some)))
        else:
            nodes[at] = garbled(random, in_base64(some[at]), in_base64(random.choice(some)))
        try:
            wanted = check(MUTABLE_SIDE, [[message(nodes, metadata=MUTABLE_SIDE.metadata)]])
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        happened["rejected" if [UNKNOWN] in wanted else "the same"] += 1
    assert min(happened["the same"], happened["rejected"]) > SEEDS // 100, happened


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_the_column_decoder_is_caught(mutant: mutants.Mutant) -> None:
    @settings(effort(1000), max_examples=1000, phases=[Phase.generate])
    @given(st.data())
    def differs(drawn: st.DataObject) -> None:
        check(MUTABLE_SIDE, drawn.draw(answers(ODD)))

    with mutant(), pytest.raises(AssertionError):
        differs()
