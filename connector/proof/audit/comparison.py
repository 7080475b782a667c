"""Compares the rows that Spanner returns for a range of commit time with those that the spool holds of it. Pure.

Rows that are equal, and that is nearly always all of them, are compared as columns; only the transactions that are not
equal become Python objects.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.changes import Int64s, integers
from connector.core.value_texts import Bools
from connector.proof.audit.findings import Finding, Kind
from connector.proof.audit.rows import FIELDS, ComparableRows
from connector.proof.audit.transaction import IDENTITY, differing, whole


def differences(expected: ComparableRows, found: ComparableRows) -> Iterator[Finding]:
    """Compares whole transactions.

    Args:
        expected: what Spanner returns.
        found: what the spool holds, of the same range of commit time.

    Yields:
        A finding for each transaction that is not the same: those that are missing, those that are only in the spool,
        those that differ, each by commit timestamp; then those that are in another order.
    """
    if len(expected) == len(found) and all(
        expected.column(name).equals(found.column(name)) for name in ("time", *FIELDS)
    ):
        return
    pairs = _Pairs(expected, found)
    yield from pairs.alone()
    equal = pairs.equal()
    for code in np.flatnonzero(pairs.on_both & ~equal).tolist():
        finding = pairs.finding(code)
        if finding is not None:
            yield finding
    yield from pairs.misordered(equal)


class _Pairs:
    """The transactions of both sides, numbered in the order in which Spanner returns them; the spool's own follow."""

    def __init__(self, expected: ComparableRows, found: ComparableRows) -> None:
        both = pa.concat_arrays([_names(expected), _names(found)]).dictionary_encode()
        codes = integers(both.indices)
        self._expected = _Side(expected, codes[: len(expected)], len(both.dictionary))
        self._found = _Side(found, codes[len(expected) :], len(both.dictionary))
        self.on_both: Bools = (self._expected.counts > 0) & (self._found.counts > 0)

    def alone(self) -> Iterator[Finding]:
        """The transactions that only one side has."""
        yield from self._expected.whole(Kind.MISSING, self._found.counts == 0, epoch=False)
        yield from self._found.whole(Kind.EXTRA, self._expected.counts == 0, epoch=True)

    def equal(self) -> Bools:
        """For each transaction whether both sides have it, with the same texts in the same order."""
        equal: Bools = self.on_both & (self._expected.counts == self._found.counts)
        one, other = self._expected.of(equal), self._found.of(equal)
        equal[self._expected.codes[one[_unequal(self._expected.rows, one, self._found.rows, other)]]] = False
        return equal

    def finding(self, code: int) -> Finding | None:
        """The difference between both sides of a transaction; None if they differ only in how they are written."""
        return differing(self._expected.rows_of(code), self._found.rows_of(code))

    def misordered(self, equal: Bools) -> Iterator[Finding]:
        """The equal transactions that the spool holds before one with an earlier commit timestamp."""
        places = np.full(len(self._expected.rows), -1, np.int64)
        places[self._expected.of(equal)] = self._found.of(equal)
        compared = np.flatnonzero(places >= 0)
        places = places[compared]
        early = compared[1:][places[1:] < np.maximum.accumulate(places)[:-1]] if len(places) else compared
        for code in dict.fromkeys(self._expected.codes[early].tolist()):
            yield whole(Kind.ORDER, self._found.rows_of(code), epoch=True)


class _Side:
    """The rows of one side, grouped by transaction; ``codes``: the number of each row's."""

    def __init__(self, rows: ComparableRows, codes: Int64s, transactions: int) -> None:
        self.rows = rows
        self.codes = codes
        self.counts = np.bincount(codes, minlength=transactions)
        self._grouped = np.argsort(codes, kind="stable")
        self._starts = np.cumsum(self.counts) - self.counts

    def of(self, transactions: Bools) -> Int64s:
        """The rows of these transactions, one transaction after the other by their numbers."""
        return self._grouped[transactions[self.codes[self._grouped]]]

    def whole(self, kind: Kind, transactions: Bools, *, epoch: bool) -> Iterator[Finding]:
        """The finding of each of these transactions that this side has; ``epoch``: it is the spool."""
        rows = self.rows.rows(self.of(transactions), IDENTITY)
        start = 0
        for count in self.counts[transactions].tolist():
            if count:
                yield whole(kind, rows[start : start + count], epoch=epoch)
            start += count

    def rows_of(self, code: int) -> list[dict[str, object]]:
        """The rows of a transaction."""
        start = int(self._starts[code])
        return self.rows.rows(self._grouped[start : start + int(self.counts[code])])


def _names(rows: ComparableRows) -> pa.Array:
    """The identifier of each row's transaction."""
    ids = rows.column("server_transaction_id").fill_null("")
    return pc.binary_join_element_wise(rows.column("time").cast(pa.string()), ids, "/")


def _unequal(expected: ComparableRows, one: Int64s, found: ComparableRows, other: Int64s) -> Bools:
    """A mask that is true where the rows at the same place in ``one`` and ``other`` differ."""
    unequal = np.zeros(len(one), np.bool_)
    indexes = pa.array(one), pa.array(other)
    for name in FIELDS:
        left, right = expected.column(name).take(indexes[0]), found.column(name).take(indexes[1])
        if left.equals(right):
            continue
        differs = pc.fill_null(pc.not_equal(left, right), pa.scalar(False)).to_numpy(zero_copy_only=False)
        nulls = pc.xor(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
        unequal |= differs.astype(np.bool_) | nulls.astype(np.bool_)
    return unequal
