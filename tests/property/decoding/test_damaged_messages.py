"""Damaged messages crash nothing, and both decoders agree on every message that a typed engine could send.

A campaign: ``DAMAGED_SEEDS=100000 pytest --run-long tests/property/decoding/test_damaged_messages.py``.
A failure names its seed.
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
from connector.spanner.decoding.chunks import ValueAssembler
from tests.property.decoding.change_rows import some_rows
from tests.property.decoding.damage import damaged, garbled, is_of
from tests.property.decoding.framed import field
from tests.property.decoding.two_ways import UNKNOWN, Lists, Side, both_dialects, check, fast_items, outcome, records
from tests.property.effort import share_of

SEEDS = int(os.environ.get("DAMAGED_SEEDS", share_of(400)))

Damage = Callable[[Side, Random, list[list[bytes]]], list[bytes]]
"""Takes the rows of each message, and returns damaged messages."""


@cache
def rows_of(dialect: str) -> list[bytes]:
    """Real rows with one and with fifty mods, a real announcement, and generated rows with every kind of record."""
    sample = Sample.of(dialect)
    real = [*sample.records[1], sample.announcement, *sample.records[50]]
    made = some_rows(dialect, Random(7), 60)
    return [row.SerializeToString() for row in [*made, *real[:-1], *made, *real]]


def of_rows(rows: list[bytes]) -> bytes:
    return b"".join(field(2, row) for row in rows)


def answer(side: Side, random: Random) -> list[list[bytes]]:
    """Draws the rows of each message of a query's answer."""
    rows = rows_of(side.name)
    found = []
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(rows))
        found.append([*rows[at : at + random.choice((1, 1, 3, 16))]])
    return found


def in_bytes(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damages any bytes, those of the framing included."""
    messages = [of_rows(some) for some in rows]
    at = random.randrange(len(messages))
    messages[at] = damaged(random, messages[at], random.choice(messages))
    return messages


def in_a_row(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damages the bytes of a row's value."""
    some = random.choice(rows)
    at = random.randrange(len(some))
    some[at] = damaged(random, some[at], random.choice(some))
    return [of_rows(some) for some in rows]


def in_a_text(side: Side, random: Random, rows: list[list[bytes]]) -> list[bytes]:
    """Damages a string of a row; in the PostgreSQL dialect that is the whole document."""
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


@pytest.mark.long(but=3)
@pytest.mark.parametrize("damage", [in_bytes, in_a_row, in_a_text])
@both_dialects
def test_both_decoders_agree_on_damaged_messages(side: Side, damage: Damage) -> None:
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
    assert min(happened["the same"], happened["rejected"]) > SEEDS // 40, happened


def compared(side: Side, lists: Lists) -> str:
    if is_typed(side, lists):
        return "rejected" if [UNKNOWN] in check(side, lists) else "the same"
    found = records(fast_items(side, lists))  # nothing but UnknownRecordError was raised
    if UNKNOWN in found:
        return "rejected"
    return "untyped" if found != [one for some in outcome(side.plain(), lists) for one in some] else "untyped, the same"


def is_typed(side: Side, lists: Lists) -> bool:
    """True if all rows are of the row type in the metadata."""
    try:
        assembler = ValueAssembler()
        return all(is_of(row, side.metadata) for some in lists for row in assembler.values(some))
    except (DecodeError, ValueError):
        return False


@both_dialects
def test_a_field_or_a_payload_that_is_not_utf_8_is_rejected(side: Side) -> None:
    """Unknown members of a PostgreSQL document are ignored, and may hold anything."""
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
def test_both_decoders_agree_on_numbers_of_any_length(side: Side, odd: str) -> None:
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
def test_values_nested_deeper_than_a_parser_allows_are_rejected(side: Side) -> None:
    row = field(3, b'{"data_change_record":' + b"[" * 100_000)
    for _ in range(200 if side.name == "googlesql" else 0):
        row = field(6, field(1, row))
    assert fast_items(side, [[field(1, side.metadata)], [of_rows([row])]]) == [UNKNOWN]
