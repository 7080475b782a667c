"""Draws valid rows of every form, which the mutations then change."""

import struct
from copy import deepcopy
from random import Random
from typing import Any

from emulator.scripted.wire import varint
from tests.property.decoding.change_rows import Children, DataChange, Heartbeat, written

_TABLES = (
    ("Singers", [("Id", '{"code":"INT64"}', True, 1), ("Name", '{"code":"STRING"}', False, 2)]),
    ("music.Älben", [("Ä", '{"code":"ARRAY","array_element_type":{"code":"STRING"}}', False, 7)]),
    ("Keyless", [("V", '{"code":"STRING"}', False, 1)]),
)
_PARENTS: tuple[list[str | None] | None, ...] = (None, [], [None], ["p"], ["p", "q"])
_PAYLOADS = ("{}", '{"Id":"1"}', '{"Id":"1","Name":null}', '{"Ä":["a","b"],"V":true}', '{"n":7}')


def change(random: Random, at: int) -> DataChange | Heartbeat | Children:
    """Draws a record of any kind."""
    timestamp = written(at, random.choice((6, 6, 9, 0)), "Z")
    kind = random.randrange(8)
    if kind == 0:
        return Heartbeat(timestamp)
    if kind == 1:
        children: list[tuple[str, list[str | None] | None]] = [
            (token, random.choice(_PARENTS)) for token in random.sample("cde", random.randint(1, 3))
        ]
        return Children(timestamp, "00000001", children)
    return DataChange(
        commit_timestamp=timestamp,
        record_sequence=random.choice(("00000000", "7", "83365be2414b3aae-00000001")),
        server_transaction_id=random.choice(("a", "MTQyNTcxODE0NTc5NzQxNDkyNjk=")),
        is_last_record_in_transaction_in_partition=random.random() < 0.5,
        table=random.choice(_TABLES),
        mods=[
            (random.choice(_PAYLOADS), random.choice(_PAYLOADS), random.choice(_PAYLOADS))
            for _ in range(random.choice((0, 1, 1, 2, 4)))
        ],
        mod_type=random.choice(("INSERT", "UPDATE", "DELETE")),
        value_capture_type=random.choice(("OLD_AND_NEW_VALUES", "NEW_ROW")),
        number_of_records_in_transaction=random.choice((1, 2, 300)),
        number_of_partitions_in_transaction=1,
        transaction_tag=random.choice(("", "app=x")),
        is_system_transaction=False,
    )


def data_change(random: Random, at: int) -> DataChange:
    """Draws a data change record."""
    while not isinstance(found := change(random, at), DataChange):
        pass
    return found


def _columns(table: int) -> list[Any]:
    return [
        [(1, f"C{number}"), (2, [(1, code)]), (3, int(number == 0)), (4, number + 1)]
        for number, code in enumerate((2, 6, 1)[: 3 - table])
    ]


def proto(random: Random, at: int, *, data: bool = False) -> Any:
    """Draws a google.spanner.v1.ChangeStreamRecord as a list of its fields, a data change record if ``data``."""
    timestamp = [(1, at // 10**9), (2, at % 10**9)]
    kind = 9 if data else random.randrange(10)
    if kind < 4:
        where = [(2, "00000001"), (3, "c")]
        return [
            (2, [(1, timestamp)]), (3, [(1, timestamp), *where, (3, "d")]), (4, [(1, timestamp), *where]),
            (5, [(1, timestamp), *where, (4, [(1, "d")])]),
        ][kind : kind + 1]  # fmt: skip
    table = random.randrange(3)
    columns = _columns(table)
    return [
        (
            1,
            [
                (1, timestamp), (2, random.choice(("00000000", "83365be2414b3aae-00000001"))), (3, "MTQyNTcxODE0"),
                (4, random.randrange(2)), (5, ("T", "Singers", "music.Älben")[table]),
                *((6, column) for column in columns),
                *((7, _proto_mod(random, len(columns))) for _ in range(random.choice((0, 1, 1, 2, 4)))),
                (8, random.choice((10, 20, 30))), (9, random.choice((10, 20, 30, 40))), (10, random.choice((1, 300))),
                (11, 1), (12, random.choice(("", "app=x"))), (13, 0),
            ],
        )
    ]  # fmt: skip


_VALUES: tuple[Any, ...] = (
    [(3, "1")], [(3, "")], [(3, 'a "quoted" text')], [(1, 0)], [(2, 0.5)], [(4, 1)],
    [(6, [(1, [(3, "x")]), (1, [(1, 0)])])],
)  # fmt: skip


def _proto_mod(random: Random, columns: int) -> Any:
    return [
        (payload, [(1, index), (2, deepcopy(random.choice(_VALUES)))])
        for payload in (1, 2, 3)
        for index in random.sample(range(columns), random.randrange(columns + 1))
    ]


def encoded(fields: Any) -> bytes:
    """Encodes a message that is given as a list of its fields."""
    found = b""
    for number, held in fields:
        match held:
            case int():
                found += varint(number << 3) + varint(held)
            case float():
                found += varint(number << 3 | 1) + struct.pack("<d", held)
            case _:
                content = held.encode() if isinstance(held, str) else encoded(held)
                found += varint(number << 3 | 2) + varint(len(content)) + content
    return found
