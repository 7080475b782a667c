"""Fuzzes the decoders: rows of a mutated structure are decoded in both ways and compared with a plain specification.

    python -m tests.property.decoding.fuzz_rows --rows 100000

Each row begins valid. Then values change their kind, become NULL, are removed, added, nested, moved out of range or
swapped. :mod:`tests.property.decoding.specification` decides whether the result is valid, and what it means. No invalid
row may be accepted, and no valid row rejected. The column decoder either gives the same records, or leaves the row to
the row decoder. Half of the rows are decoded among valid neighbours, whose borders the mutated row must not blur.
"""

import argparse
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from typing import Any

import click
from google.protobuf.struct_pb2 import Value

from connector.core.records import Record
from connector.spanner.decoding.row_fields import UnknownRecordError
from tests.property.decoding.change_rows import AT, value
from tests.property.decoding.framed import message
from tests.property.decoding.fuzzing.row_formats import RowFormat, row_formats
from tests.property.decoding.specification.fields import READ, InvalidError, meant
from tests.property.decoding.specification.postgresql_rows import names_a_member_twice


def mutated(rows: RowFormat, random: Random, tree: Any) -> tuple[Any, list[str]]:
    """Applies one to three mutations to a tree; returns it and the mutations' names."""
    names = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        where = rows.places(tree)
        if where:
            mutation = random.choice(rows.mutations)
            mutation(random, *random.choice(where))
            names.append(mutation.__name__)
    return tree, names


def try_one(rows: RowFormat, seed: str) -> tuple[list[str], str]:
    """Makes, mutates and decodes a row.

    Returns:
        The mutations' names, and the outcome: ``rejected``, ``walked`` by the row decoder alone, or ``columns``.

    Raises:
        AssertionError: a decoder has accepted an invalid row, rejected a valid one, or returned another record.
    """
    random = Random(seed)
    tree, names = mutated(rows, random, rows.make(random, AT + 10**9))
    node = rows.encode(random, tree)
    try:
        wanted: list[Record] | None = rows.specify(tree, node)
    except InvalidError:
        wanted = None
    row = message([node])
    walked = _walked(rows, node)
    if walked is None and rows.name == "postgresql" and wanted and names_a_member_twice(node):
        wanted = None
    assert walked == wanted, "the row decoder"
    before, after = ([*random.sample(some, 2)] if random.random() < 0.4 else [] for some in (rows.before, rows.after))
    before.sort(key=lambda one: one.at)
    after.sort(key=lambda one: one.at)
    found = rows.columns(b"".join([one.message for one in before] + [row] + [one.message for one in after]), READ)
    if found is None:
        return names, "rejected" if wanted is None else "walked"
    assert wanted is not None, "the column decoder accepts an invalid row"
    records = [meant(record) for record in found.records()]
    assert records == [*(one.record for one in before), *wanted, *(one.record for one in after)], "the column decoder"
    return names, "columns"


def _walked(rows: RowFormat, node: Any) -> list[Record] | None:
    try:
        records = rows.walk(_value(node), READ)
    except UnknownRecordError:
        return None
    return [meant(record) for record in records]


def _value(node: Any) -> Value:
    return Value.FromString(value(node).SerializeToString())


@dataclass(frozen=True)
class Outcome:
    """The outcomes of the rows of one decoder: by outcome, and by mutation and outcome."""

    decoder: str
    rows: int
    seconds: float
    outcomes: Counter[str]
    mutations: Counter[tuple[str, str]]


def campaign(name: str, rows: int, seed: int) -> Outcome:
    """Fuzzes one decoder with so many mutated rows.

    Raises:
        AssertionError: a row was decoded wrongly; the error's note has the row's seed.
    """
    row_format = row_formats()[name]
    outcomes: Counter[str] = Counter()
    mutations: Counter[tuple[str, str]] = Counter()
    started = time.monotonic()
    for number in range(rows):
        row = f"{seed} {name} {number}"
        try:
            names, outcome = try_one(row_format, row)
        except BaseException as error:
            error.add_note(f'try_one(row_formats()["{name}"], "{row}")')
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
    parser.add_argument("--only", choices=list(row_formats()), action="append")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    seed = SystemRandom().randrange(10**9) if given.seed is None else given.seed
    click.echo(f"seed {seed}")
    with ProcessPoolExecutor(given.processes) as pool:
        for done in pool.map(partial(campaign, rows=given.rows, seed=seed), given.only or list(row_formats())):
            click.echo(
                f"{done.decoder}: {done.rows} rows in {done.seconds:.0f} s, {dict(sorted(done.outcomes.items()))}"
            )
            for mutation in sorted({name for name, _ in done.mutations}):
                by = {outcome: done.mutations[mutation, outcome] for outcome in sorted(done.outcomes)}
                click.echo(f"    {mutation:28} {by}")


if __name__ == "__main__":
    main()
