"""Groups changes into units: whole transactions, in order, that are written together. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from connector.core.timestamps import parse
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange


class UnitPosition(NamedTuple):
    """The position up to which a spool is applied: all epochs before ``epoch``, and ``events`` events of it."""

    epoch: int
    events: int


@dataclass(slots=True)
class Unit:
    """Whole transactions.

    Attributes:
        start: the position before them.
        end: the position after them.
        transactions: the changes of each.
        complete: the commit timestamp up to which every change is applied after it, Unix nanoseconds; None where it
            ends with an epoch, and it is that one's watermark.
    """

    start: UnitPosition
    end: UnitPosition
    transactions: list[list[KeyedChange]] = field(default_factory=list)
    complete: int | None = None

    @property
    def changes(self) -> Iterator[KeyedChange]:
        """All changes, in order."""
        return (change for transaction in self.transactions for change in transaction)

    def halves(self) -> "tuple[Unit, Unit]":
        """Two units of the same transactions, of which there are at least two."""
        middle = len(self.transactions) // 2
        first, second = self.transactions[:middle], self.transactions[middle:]
        between = UnitPosition(*second[0][0].at)
        return Unit(self.start, between, first, _before(second[0])), Unit(between, self.end, second, self.complete)


def units(
    changes: Iterable[KeyedChange], *, start: UnitPosition, end: UnitPosition, most: int, most_bytes: int
) -> Iterator[Unit]:
    """Groups changes into units.

    A table that was created again in another spelling is one table in the destination: a unit has changes of one of the
    two, so that they are written in their order.

    Args:
        changes: in order, from ``start`` on; those of a transaction follow one another, within one epoch.
        start: the position before the first.
        end: the position after the last.
        most: changes of a unit, unless one transaction has more.
        most_bytes: characters of payloads of a unit, unless one transaction has more.
    """
    unit, spelled = Unit(start, start), dict[str, str]()
    held = size = 0
    for _, found in groupby(changes, key=lambda change: (change.at[0], change.transaction)):
        transaction = list(found)
        length = sum(len(change.payload) for change in transaction)
        tables = {change.table for change in transaction}
        is_again = any(spelled.get(table.lower(), table) != table for table in tables)
        if unit.transactions and (is_again or held + len(transaction) > most or size + length > most_bytes):
            unit.end, unit.complete = UnitPosition(*transaction[0].at), _before(transaction)
            yield unit
            unit, held, size = Unit(unit.end, unit.end), 0, 0
            spelled.clear()
        spelled.update((table.lower(), table) for table in tables)
        unit.transactions.append(transaction)
        held += len(transaction)
        size += length
    if unit.transactions:
        unit.end = end
        yield unit


def _before(transaction: list[KeyedChange]) -> int:
    """The last timestamp before a transaction: another one before it may have the same commit timestamp."""
    return parse(transaction[0].commit_timestamp) - 1
