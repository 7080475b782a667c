"""Rows whose structure is mutated, decoded by the walk and by the fast ways, and held against a plain description.

    python -m tests.property.decoding.fuzz_rows --rows 100000

Each row begins valid. Then values become of another kind, NULL, missing, more, nested, out of range, or change places;
:mod:`tests.property.decoding.row_schema` says whether what is left is valid, and what it means. No row that is not
valid may be taken, none that is may be refused, and the fast way gives the same records or leaves the row to the walk.
Half of the rows stand among others, whose borders the mutated one must not blur.
"""

import argparse
import json
import struct
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from typing import Any

import click
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.core.records import Record
from connector.decoding.decoder import Columns
from connector.decoding.googlesql import GooglesqlColumns
from connector.decoding.mutable import MutableColumns
from connector.decoding.postgresql import PostgresqlColumns
from connector.decoding.walk import UnknownRecordError, Walk, walk
from emulator.scripted.wire import varint
from tests.property.decoding import row_schema
from tests.property.decoding.change_rows import (
    AT,
    STYLES,
    Children,
    DataChange,
    Heartbeat,
    Json,
    googlesql,
    places,
    postgresql,
    text,
    value,
    written,
)
from tests.property.decoding.framed import message

READ = row_schema.READ

# Valid rows

_TABLES = (
    ("Singers", [("Id", '{"code":"INT64"}', True, 1), ("Name", '{"code":"STRING"}', False, 2)]),
    ("music.Älben", [("Ä", '{"code":"ARRAY","array_element_type":{"code":"STRING"}}', False, 7)]),
    ("Keyless", [("V", '{"code":"STRING"}', False, 1)]),
)
_PARENTS: tuple[list[str | None] | None, ...] = (None, [], [None], ["p"], ["p", "q"])
_PAYLOADS = ("{}", '{"Id":"1"}', '{"Id":"1","Name":null}', '{"Ä":["a","b"],"V":true}', '{"n":7}')


def _change(random: Random, at: int) -> DataChange | Heartbeat | Children:
    moment = written(at, random.choice((6, 6, 9, 0)), "Z")
    kind = random.randrange(8)
    if kind == 0:
        return Heartbeat(moment)
    if kind == 1:
        children: list[tuple[str, list[str | None] | None]] = [
            (token, random.choice(_PARENTS)) for token in random.sample("cde", random.randint(1, 3))
        ]
        return Children(moment, "00000001", children)
    return DataChange(
        commit_timestamp=moment,
        record_sequence=random.choice(("00000000", "7", "83365be2414b3aae-00000001")),
        server_transaction_id=random.choice(("a", "MTQyNTcxODE0NTc5NzQxNDkyNjk=")),
        is_last_record_in_transaction_in_partition=random.random() < 0.5,
        shape=random.choice(_TABLES),
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


def _data(random: Random, at: int) -> DataChange:
    while not isinstance(found := _change(random, at), DataChange):
        pass
    return found


def _columns(table: int) -> list[Any]:
    return [
        [(1, f"C{number}"), (2, [(1, code)]), (3, int(number == 0)), (4, number + 1)]
        for number, code in enumerate((2, 6, 1)[: 3 - table])
    ]


def _proto(random: Random, at: int, *, data: bool = False) -> Any:
    moment = [(1, at // 10**9), (2, at % 10**9)]
    kind = 9 if data else random.randrange(10)
    if kind < 4:
        where = [(2, "00000001"), (3, "c")]
        return [
            (2, [(1, moment)]), (3, [(1, moment), *where, (3, "d")]), (4, [(1, moment), *where]),
            (5, [(1, moment), *where, (4, [(1, "d")])]),
        ][kind : kind + 1]  # fmt: skip
    table = random.randrange(3)
    columns = _columns(table)
    return [
        (
            1,
            [
                (1, moment), (2, random.choice(("00000000", "83365be2414b3aae-00000001"))), (3, "MTQyNTcxODE0"),
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


def encoded(message_: Any) -> bytes:
    """The bytes of a message that is told as its fields."""
    found = b""
    for number, held in message_:
        match held:
            case int():
                found += varint(number << 3) + varint(held)
            case float():
                found += varint(number << 3 | 1) + struct.pack("<d", held)
            case _:
                content = held.encode() if isinstance(held, str) else encoded(held)
                found += varint(number << 3 | 2) + varint(len(content)) + content
    return found


# Mutations: each changes what stands at one place of a tree of lists or of objects

Mutation = Callable[[Random, Any, Any], None]


def becomes_null(_: Random, of: Any, at: Any) -> None:
    of[at] = None


def becomes_of_another_kind(random: Random, of: Any, at: Any) -> None:
    of[at] = random.choice(("x", "", "true", "1", True, False, 1.5, 1.0, [], ["x"], [[]], [None]))


def becomes_an_object(random: Random, of: Any, at: Any) -> None:
    of[at] = random.choice(({}, {"a": "1"}, {"code": "X"}, 7, -1, 2**70))


def is_missing(_: Random, of: Any, at: Any) -> None:
    del of[at]


def stands_twice(_: Random, of: Any, at: Any) -> None:
    if isinstance(of, list):
        of.insert(at, deepcopy(of[at]))


def has_another_behind(random: Random, of: Any, at: Any) -> None:
    item = random.choice(("new", True, None, ["new"], [["new"]], 1.5, []))
    if isinstance(of, list):
        of.insert(random.choice((at, at + 1, len(of))), item)
    else:
        of["new"] = item


def changes_places(random: Random, of: Any, at: Any) -> None:
    other = random.choice(list(of) if isinstance(of, dict) else range(len(of)))
    of[at], of[other] = of[other], of[at]


def is_nested(_: Random, of: Any, at: Any) -> None:
    of[at] = [of[at]]


def is_unnested(_: Random, of: Any, at: Any) -> None:
    if isinstance(of, list) and isinstance(of[at], list):
        of[at : at + 1] = of[at]


def is_emptied(_: Random, of: Any, at: Any) -> None:
    of[at] = type(of[at])() if isinstance(of[at], list | dict | str) else ""


def moves_elsewhere(random: Random, of: Any, at: Any) -> None:
    """To the end of a list beside it, as if a border were lost."""
    inner = of if isinstance(of, list) else of.values()
    beside = [item for item in inner if isinstance(item, list) and item is not of[at]]
    if beside:
        item = of.pop(at)
        random.choice(beside).append(item)


_TEXTS = (
    "", "x", "null", " null ", "[]", "[1]", "5", '"x"', "true", '{"a":"1"}', ' {"a":"1"}', '{"a":"1"}\n', "{ }", "nul",
    "1.5", " 1", "1_0", "9" * 19, "9" * 30, "-1", "٣", "2026-01-02", "2026-01-02T03:04:59.1Z", "9999-01-01T00:00:00Z",
    '{"code":7}', '{"new":1}', "k" * 200, "k" * 20_000,
)  # fmt: skip


def is_another_text(random: Random, of: Any, at: Any) -> None:
    text_ = random.choice(_TEXTS)
    if isinstance(of[at], Json):
        try:
            json.loads(text_)
        except ValueError:
            text_ = "null"
        of[at] = Json(text_)
    else:
        of[at] = text_


class _Again(str):
    """A name of a member that a dictionary takes a second time."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def is_named_twice(random: Random, of: Any, at: Any) -> None:
    if isinstance(of, dict):
        of[_Again(at)] = random.choice((deepcopy(of[at]), None, "x", [], 1))


def is_named_otherwise(random: Random, of: Any, at: Any) -> None:
    if isinstance(of, dict):
        of[random.choice(("new", f"{at}s", str(at).upper(), "heartbeat_record", "mods", "keys"))] = of.pop(at)


_ON_LISTS: tuple[Mutation, ...] = (
    becomes_null, becomes_of_another_kind, is_missing, stands_twice, has_another_behind, changes_places, is_nested,
    is_unnested, is_emptied, moves_elsewhere, is_another_text,
)  # fmt: skip
_ON_DOCUMENTS = (*_ON_LISTS, becomes_an_object, is_named_twice, is_named_otherwise)


# Of messages: a place is a list of fields and the number of one of them


def field_of_another_kind(random: Random, of: Any, at: int) -> None:
    number, held = of[at]
    of[at] = (number, 1.5 if isinstance(held, int) else random.choice((7, 1.5)))


def field_of_another_number(random: Random, of: Any, at: int) -> None:
    _, held = of[at]
    if isinstance(held, int | float):
        of[at] = (random.choice((1, 4, 8, 9, 13, 14, 20)), held)
    else:
        of[at] = (random.choice((14, 15, 20)), held)


def number_out_of_range(random: Random, of: Any, at: int) -> None:
    number, held = of[at]
    if isinstance(held, int):
        of[at] = (number, random.choice((0, 1, 2, 3, 5, 99, 2**31 - 1, 2**64 - 1, 2**32 + 1)))


def field_emptied(_: Random, of: Any, at: int) -> None:
    number, held = of[at]
    of[at] = (number, type(held)())


def field_changes_places(random: Random, of: Any, at: int) -> None:
    other = random.randrange(len(of))
    of[at], of[other] = of[other], of[at]


_ON_MESSAGES: tuple[Mutation, ...] = (
    field_of_another_kind, field_of_another_number, number_out_of_range, is_missing, stands_twice, field_emptied,
    field_changes_places,
)  # fmt: skip


def _fields(message_: Any) -> Iterator[tuple[Any, int]]:
    for at, (_, held) in enumerate(message_):
        yield message_, at
        if isinstance(held, list):
            yield from _fields(held)


# Decoders


_NEIGHBOURS = 40


@dataclass(frozen=True)
class Neighbour:
    """A valid row that stands beside a mutated one: when it was committed, its message, and what it means."""

    at: int
    message: bytes
    record: Record


@dataclass(frozen=True)
class Form:
    """A form of rows: how they are made, mutated, encoded, described and decoded."""

    name: str
    make: Callable[[Random, int], Any]
    data: Callable[[Random, int], Any]
    places: Callable[[Any], Sequence[tuple[Any, Any]]]
    mutations: tuple[Mutation, ...]
    encode: Callable[[Random, Any], Any]
    """To the node of a row, as :func:`tests.property.decoding.change_rows.value` takes it."""
    describe: Callable[[Any, Any], list[Record]]
    """Takes the tree and the node."""
    walk: Walk
    columns: Columns
    before: list[Neighbour]
    after: list[Neighbour]


def _with_neighbours(form: Form) -> Form:
    random = Random(7)
    for some, start in ((form.before, AT), (form.after, AT + 2 * 10**9)):
        for number in range(_NEIGHBOURS):
            tree = form.data(random, start + number)
            node = form.encode(random, tree)
            (record,) = form.describe(tree, node)
            some.append(Neighbour(start + number, message([node]), record))
    return form


def forms() -> dict[str, Form]:
    """The four decoders."""

    def mutable(name: str, of: Walk) -> Form:
        return Form(
            name, _proto, partial(_proto, data=True), lambda tree: list(_fields(tree)), _ON_MESSAGES,
            lambda _, tree: b64encode(encoded(tree)).decode(), lambda tree, _: row_schema.mutable(tree), of,
            MutableColumns(), [], [],
        )  # fmt: skip

    found = (
        Form(
            "googlesql", lambda random, at: [googlesql(_change(random, at))],
            lambda random, at: [googlesql(_data(random, at))], lambda tree: places([tree]), _ON_LISTS,
            lambda _, tree: tree, lambda tree, _: row_schema.googlesql(tree), walk(GOOGLESQL, IMMUTABLE),
            GooglesqlColumns(), [], [],
        ),
        Form(
            "postgresql", lambda random, at: postgresql(_change(random, at)),
            lambda random, at: postgresql(_data(random, at)), places, _ON_DOCUMENTS,
            lambda random, tree: text(tree, random.choice(STYLES)), lambda _, node: row_schema.postgresql(node),
            walk(POSTGRESQL, IMMUTABLE), PostgresqlColumns(), [], [],
        ),
        mutable("mutable-googlesql", walk(GOOGLESQL, MUTABLE)),
        mutable("mutable-postgresql", walk(POSTGRESQL, MUTABLE)),
    )  # fmt: skip
    return {form.name: _with_neighbours(form) for form in found}


def mutated(form: Form, random: Random, tree: Any) -> tuple[Any, list[str]]:
    """The tree, changed by one mutation or a few, and what they are called."""
    names = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        where = form.places(tree)
        if where:
            mutation = random.choice(form.mutations)
            mutation(random, *random.choice(where))
            names.append(mutation.__name__)
    return tree, names


def try_one(form: Form, seed: str) -> tuple[list[str], str]:
    """Makes, mutates and decodes a row; gives the mutations' names, and what became of the row.

    Raises:
        AssertionError: a decoder has taken a row that is not valid, or not taken one that is, or for another.
    """
    random = Random(seed)
    tree, names = mutated(form, random, form.make(random, AT + 10**9))
    node = form.encode(random, tree)
    try:
        wanted: list[Record] | None = form.describe(tree, node)
    except row_schema.InvalidError:
        wanted = None
    row = message([node])
    walked = _walked(form, node)
    if walked is None and form.name == "postgresql" and wanted and row_schema.names_a_member_twice(node):
        wanted = None
    assert walked == wanted, "the walk"
    before, after = ([*random.sample(some, 2)] if random.random() < 0.4 else [] for some in (form.before, form.after))
    before.sort(key=lambda one: one.at)
    after.sort(key=lambda one: one.at)
    found = form.columns(b"".join([one.message for one in before] + [row] + [one.message for one in after]), READ)
    if found is None:
        return names, "refused" if wanted is None else "walked"
    assert wanted is not None, "the fast way takes a row that is not valid"
    records = [row_schema.meant(record) for record in found.records()]
    assert records == [*(one.record for one in before), *wanted, *(one.record for one in after)], "the fast way"
    return names, "columns"


def _walked(form: Form, node: Any) -> list[Record] | None:
    try:
        records = form.walk(_value(node), READ)
    except UnknownRecordError:
        return None
    return [row_schema.meant(record) for record in records]


def _value(node: Any) -> Value:
    return Value.FromString(value(node).SerializeToString())


@dataclass(frozen=True)
class Outcome:
    """What became of the rows of one decoder: by outcome, and by mutation and outcome."""

    decoder: str
    rows: int
    seconds: float
    outcomes: Counter[str]
    mutations: Counter[tuple[str, str]]


def campaign(name: str, rows: int, seed: int) -> Outcome:
    """So many mutated rows for one of the decoders.

    Raises:
        AssertionError: one was decoded wrongly; its note has the seed of the row.
    """
    form = forms()[name]
    outcomes: Counter[str] = Counter()
    mutations: Counter[tuple[str, str]] = Counter()
    started = time.monotonic()
    for number in range(rows):
        row = f"{seed} {name} {number}"
        try:
            names, outcome = try_one(form, row)
        except BaseException as error:
            error.add_note(f'try_one(forms()["{name}"], "{row}")')
            raise
        outcomes[outcome] += 1
        for mutation in names:
            mutations[mutation, outcome] += 1
    return Outcome(name, rows, time.monotonic() - started, outcomes, mutations)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="for each decoder")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=list(forms()), action="append")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    seed = SystemRandom().randrange(10**9) if given.seed is None else given.seed
    click.echo(f"seed {seed}")
    with ProcessPoolExecutor(given.processes) as pool:
        for done in pool.map(partial(campaign, rows=given.rows, seed=seed), given.only or list(forms())):
            click.echo(
                f"{done.decoder}: {done.rows} rows in {done.seconds:.0f} s, {dict(sorted(done.outcomes.items()))}"
            )
            for mutation in sorted({name for name, _ in done.mutations}):
                by = {outcome: done.mutations[mutation, outcome] for outcome in sorted(done.outcomes)}
                click.echo(f"    {mutation:28} {by}")


if __name__ == "__main__":
    main()
