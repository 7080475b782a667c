"""Messages that were damaged: nothing crashes, and what a typed engine could have sent is the same in both ways.

A campaign: ``DAMAGED_SEEDS=100000 pytest tests/property/decoding/test_damaged_messages.py``. A failure tells its seed.
"""

import os
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from benchmarks.replay.sample import Sample
from connector.decoding.chunks import ValueAssembler
from tests.property.decoding.change_rows import some_rows
from tests.property.decoding.damage import damaged, garbled, is_of
from tests.property.decoding.framed import field
from tests.property.decoding.two_ways import UNKNOWN, Lists, Side, both_dialects, check, fast_items, outcome, records

SEEDS = int(os.environ.get("DAMAGED_SEEDS", "400"))

Damage = Callable[[Side, Random, list[list[bytes]]], list[bytes]]
"""Takes rows by the message in which they are, and gives damaged messages."""


@cache
def rows_of(dialect: str) -> list[bytes]:
    """Real rows of both lengths and of an announcement, and made ones of every kind of record."""
    sample = Sample.of(dialect)
    real = [*sample.records[1], sample.announcement, *sample.records[50]]
    made = some_rows(dialect, Random(7), 60)
    return [row.SerializeToString() for row in [*made, *real[:-1], *made, *real]]


def of_rows(rows: list[bytes]) -> bytes:
    return b"".join(field(2, row) for row in rows)


def answer(side: Side, random: Random) -> list[list[bytes]]:
    """The rows of a query's answer, by the message in which they are."""
    rows = rows_of(side.name)
    found = []
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(rows))
        found.append([*rows[at : at + random.choice((1, 1, 3, 16))]])
    return found


def in_bytes(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damage that may be anywhere, in the framing, too."""
    messages = [of_rows(some) for some in rows]
    at = random.randrange(len(messages))
    messages[at] = damaged(random, messages[at], random.choice(messages))
    return messages


def in_a_row(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damage within a row's value."""
    some = random.choice(rows)
    at = random.randrange(len(some))
    some[at] = damaged(random, some[at], random.choice(some))
    return [of_rows(some) for some in rows]


def in_a_text(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damage to a string of a row, that of the whole document in the PostgreSQL dialect."""
    some = random.choice(rows)
    at = random.randrange(len(some))
    value = Value.FromString(some[at])
    leaves = _strings(value)
    leaf = random.choice(leaves)
    leaf.string_value = garbled(random, leaf.string_value, random.choice(leaves).string_value)
    some[at] = value.SerializeToString()
    return [of_rows(some) for some in rows]


def _strings(value: Value) -> list[Value]:
    if value.HasField("string_value"):
        return [value]
    return [leaf for item in value.list_value.values for leaf in _strings(item)]


@pytest.mark.parametrize("damage", [in_bytes, in_a_row, in_a_text])
@both_dialects
def test_damaged_messages_are_read_as_the_plain_walk_reads_them_or_refused(side: Side, damage: Damage) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        random = Random(f"{seed} of {damage.__name__}")
        messages = damage(side, random, answer(side, random))
        lists = [[field(1, side.metadata)], *random.choice(([messages], [[one] for one in messages]))]
        try:
            happened[compared(side, lists)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert min(happened["the same"], happened["refused"]) > SEEDS // 40, happened


def compared(side: Side, lists: Lists) -> str:
    if is_typed(side, lists):
        return "refused" if [UNKNOWN] in check(side, lists) else "the same"
    found = records(fast_items(side, lists))  # nothing but UnknownRecordError was raised
    if UNKNOWN in found:
        return "refused"
    return "untyped" if found != [one for some in outcome(side.plain(), lists) for one in some] else "untyped, the same"


def is_typed(side: Side, lists: Lists) -> bool:
    """Whether all rows are of the row type that the metadata tell."""
    try:
        assembler = ValueAssembler()
        return all(is_of(row, side.metadata) for some in lists for row in assembler.values(some))
    except (DecodeError, ValueError):
        return False


@both_dialects
def test_a_field_or_a_payload_that_is_no_utf_8_is_refused(side: Side) -> None:
    """Members of a PostgreSQL document that no version knows are passed over unread, and may be anything."""
    tried = 0
    for row in some_rows(side.name, Random(3), 12):
        for leaf in _strings(row):
            whole = leaf.string_value
            for value in re.finditer(r'(?<=[a-z]":")[^"]+|(?<=[S1]":")[^"]+', whole) if whole[:1] == "{" else [None]:
                leaf.string_value = f"{whole[: value.start()]}ä{whole[value.end() :]}" if value else "ä"
                row_ = row.SerializeToString().replace("ä".encode(), b"\xc3\x28")
                lists = [[field(1, side.metadata)], [of_rows([row_])]]
                assert outcome(side.plain(), lists)[-1:] == [[UNKNOWN]]
                assert fast_items(side, lists) == [UNKNOWN]
                tried += 1
            leaf.string_value = whole
    assert tried > 100


@both_dialects
@pytest.mark.parametrize("odd", ["9" * 19, "9" * 30, "-" + "9" * 30, "9" * 5000, " 1", "1_0", "٣", "1.0", "1e3", ""])
def test_numbers_of_any_length_are_the_same_in_both_ways(side: Side, odd: str) -> None:
    tried = 0
    for row in some_rows(side.name, Random(3), 4):
        for leaf in _strings(row):
            whole = leaf.string_value
            for number in re.finditer(r'(?<=transaction":)-?\d+|^-?\d+$', whole):
                leaf.string_value = whole[: number.start()] + odd + whole[number.end() :]
                check(side, [[field(1, side.metadata)], [of_rows([row.SerializeToString()] * 3)]])
                tried += 1
            leaf.string_value = whole
    assert tried >= 4


@both_dialects
def test_what_is_nested_deeper_than_a_parser_goes_is_refused(side: Side) -> None:
    row = field(3, b'{"data_change_record":' + b"[" * 100_000)
    for _ in range(200 if side.name == "googlesql" else 0):
        row = field(6, field(1, row))
    assert fast_items(side, [[field(1, side.metadata)], [of_rows([row])]]) == [UNKNOWN]
