"""The bookkeeping row: how far a spool is applied, and which process applies it.

It is in the destination, in a table of one row for each sink and spool. In mode ``transactions`` it is written by the
commits that it counts, so each is applied once, whatever is killed when. In mode ``rows`` it follows the commits that
it counts, and what was committed without it is committed once more, with the same values. A process writes its own id
first; every transaction reads it, so that none of another process can take effect later.

The row also says up to which commit timestamp every change is applied, and the view beside the table shows that. In
mode ``transactions`` the destination is in the source's state as of then. The commit whose position passes changes that
are dead letters names their tables as incomplete: the view is true also before the next cut is published.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from google.protobuf.message import Message

from connector.core.timestamps import format_rfc3339, parse
from connector.errors import SpoolError
from connector.spool.manifest import watermark_of
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.published_cut import HAS_REJECTED
from spark_sink.sinks.spanner.config import OWN_TABLE
from spark_sink.sinks.spanner.writing.mutations import UPDATE, WRITE, RowMutation, encoded
from spark_sink.sinks.spanner.writing.row_merger import MergedRow
from spark_sink.sinks.spanner.writing.transactions import Read, SinkTransactions
from spark_sink.sinks.spanner.writing.units import UnitPosition

TABLE = OWN_TABLE

VIEW = "spanner_cdc_cuts"
"""The view for users: up to which commit timestamp each sink has applied everything."""

DDL = {
    "googlesql": (
        f"CREATE TABLE {TABLE} (sink STRING(MAX) NOT NULL, owner STRING(MAX) NOT NULL, epoch INT64 NOT NULL,"
        " events INT64 NOT NULL, updated TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),"
        " epoch_identity STRING(MAX), complete_up_to TIMESTAMP, complete_up_to_text STRING(MAX), cut STRING(MAX),"
        " incomplete STRING(MAX)) PRIMARY KEY (sink)"
    ),
    "postgresql": (
        f"CREATE TABLE {TABLE} (sink varchar NOT NULL PRIMARY KEY, owner varchar NOT NULL, epoch bigint NOT NULL,"
        " events bigint NOT NULL, updated spanner.commit_timestamp NOT NULL, epoch_identity varchar,"
        " complete_up_to timestamptz, complete_up_to_text varchar, cut varchar, incomplete varchar)"
    ),
}
"""By the dialect's name."""

_ADDED = {
    "epoch_identity": "text",
    "complete_up_to": "timestamp",
    "complete_up_to_text": "text",
    "cut": "text",
    "incomplete": "text",
}
"""Columns that a table of an older version lacks, and what they hold."""

TYPES = {
    "googlesql": {"text": "STRING(MAX)", "timestamp": "TIMESTAMP", "integer": "INT64"},
    "postgresql": {"text": "varchar", "timestamp": "timestamptz", "integer": "bigint"},
}
"""The types of columns that the sink adds, by the dialect's name and by what they hold."""

_CREATE_VIEW = (
    f"CREATE OR REPLACE VIEW {VIEW} SQL SECURITY INVOKER AS SELECT p.sink, p.epoch - 1 AS epoch, p.complete_up_to,"
    f" p.complete_up_to_text, p.incomplete, p.updated FROM {TABLE} AS p WHERE p.complete_up_to_text IS NOT NULL"
)


def statements_for(dialect: str, columns: Collection[str] | None, *, has_view: bool) -> list[str]:
    """The statements that create the table and the view, or what a database lacks of them.

    Args:
        dialect: the dialect's name.
        columns: the table's; None if there is no table.
        has_view: whether the view is there.
    """
    if columns is None:
        return [DDL[dialect], _CREATE_VIEW]
    types = TYPES[dialect]
    added = [f"ALTER TABLE {TABLE} ADD COLUMN {name} {types[of]}" for name, of in _ADDED.items() if name not in columns]
    return [*added, _CREATE_VIEW] if added or not has_view else []


IDENTITY = "epoch_identity"
"""Distinguishes the epoch that was applied last from one that another copy of the spool has under its number."""

_SELECT = f"SELECT owner, epoch, events, {IDENTITY}, complete_up_to_text, cut, incomplete FROM {TABLE} WHERE sink = "
CUT = 5
"""The place of the published cut in a row that the statement reads; empty if there is none."""
_INCOMPLETE = 6

_PARAMETERS = {"googlesql": ("@sink", "sink"), "postgresql": ("$1", "p1")}


def select_of(dialect: str, sink: str) -> tuple[str, dict[str, str]]:
    """The statement that reads the row, and its parameters."""
    placeholder, name = _PARAMETERS[dialect]
    return _SELECT + placeholder, {name: sink}


class Claimed(NamedTuple):
    """The position up to which a spool is applied.

    Attributes:
        position: the position.
        identity: of the last epoch; empty if it is not known.
        complete: the commit timestamp up to which every change is applied, RFC 3339; empty if it is not known.
    """

    position: UnitPosition
    identity: str
    complete: str = ""

    @property
    def epoch(self) -> int:
        """The number of that epoch, which may be applied in part."""
        return self.position.epoch if self.position.events else self.position.epoch - 1


@dataclass(frozen=True, slots=True)
class AppliedProgress:
    """The row of one sink and spool, as one process writes it.

    Attributes:
        transactions: of the destination.
        sink: the row's key.
        owner: the process's id, unique.
        identities: those of the epochs that are applied, by number.
        dialect: the name of the destination's.
        is_backfill: whether they are of a backfill, so that no commit timestamp has its state.
    """

    transactions: SinkTransactions
    sink: str
    owner: str
    identities: Mapping[int, str]
    dialect: str
    is_backfill: bool = False

    def claim(self, first: UnitPosition | None) -> Claimed:
        """Takes the row over from its former owner; returns how far the spool is applied.

        Args:
            first: where a sink without a row begins; None for a sink that must have one.

        Raises:
            SpoolError: the row is missing.
        """

        def claimed(row: Read | None) -> Claimed:
            if row is not None:
                return Claimed(_position(row), row[3], row[4])
            if first is not None:
                return Claimed(first, "")
            raise SpoolError(
                f"the destination has no row of sink {self.sink} in its bookkeeping table, though the sink has applied"
                " changes. The destination was restored or is another one, or that row was removed",
                hint=CONTINUES_ELSEWHERE,
            )

        return claimed(self.transactions.run(lambda row: self._written(*claimed(row))))

    def settle(self, at: UnitPosition) -> None:
        """Waits until no commit that was not answered can take effect later, if there is one.

        Such a commit has read the row: writing it makes Spanner end that transaction one way or the other.
        """
        if self.transactions.unanswered:
            self.transactions.unanswered = 0
            self.advance(at, at)

    def commit(self, mutations: Sequence[Message]) -> None:
        """Commits mutations while this process has the row.

        Raises:
            RefusedError: Spanner refuses them.
            SinkError: another process has taken the row over.
        """

        def decide(row: Read | None) -> Sequence[Message]:
            self._checked(row)
            return mutations

        self.transactions.run(decide)

    def advance(
        self,
        start: UnitPosition,
        end: UnitPosition,
        mutations: Iterable[Message] = (),
        *,
        complete: int | None = None,
        lacking: Collection[str] = (),
    ) -> None:
        """Commits mutations and the position after them, unless that is done already.

        Args:
            start: the position before them.
            end: the position after them.
            mutations: the mutations.
            complete: the commit timestamp up to which every change is applied then, Unix nanoseconds; None at the end
                of an epoch.
            lacking: the tables of the source with changes before ``end`` that are dead letters now.

        Raises:
            RefusedError: Spanner refuses them.
            SinkError: another process has taken the row over.
        """
        changes = list(mutations)

        def decide(row: Read | None) -> Sequence[Message]:
            row = self._checked(row)
            at = _position(row)
            if at not in (start, end):
                raise SinkError(f"{TABLE} of sink {self.sink} is at epoch {at.epoch}, where this sink has not been")
            identity = self.identities.get(Claimed(end, "").epoch, row[3])
            text = row[4]
            if start != end and not self.is_backfill:
                text = format_rfc3339(watermark_of(identity) if complete is None else complete)
            written = [*changes, *self._written(end, identity, text)]
            if lacking:
                written += lacks(row, self.sink, dict.fromkeys(sorted(lacking), HAS_REJECTED))
            return written if at == start else ()

        self.transactions.run(decide)

    def _checked(self, row: Read | None) -> Read:
        if row is None or row[0] != self.owner:
            raise SinkError(
                f"another process applies the spool of sink {self.sink} to the destination",
                hint="Only one may: this one ends, and has lost nothing.",
            )
        return row

    def _written(self, at: UnitPosition, identity: str, complete: str) -> list[Message]:
        values = {
            "owner": self.owner,
            "epoch": str(at.epoch),
            "events": str(at.events),
            "updated": "spanner.commit_timestamp()",
            IDENTITY: identity,
            "complete_up_to": self._timestamp(complete),
            "complete_up_to_text": complete or None,
        }
        return row_mutation(WRITE, self.sink, values)

    def _timestamp(self, complete: str) -> str | None:
        """The value of the column; in the PostgreSQL dialect it has microseconds, the last one before."""
        if not complete or self.dialect != "postgresql":
            return complete or None
        return format_rfc3339(parse(complete) // 1000 * 1000)


def row_mutation(operation: str, sink: str, values: Mapping[str, str | None]) -> list[Message]:
    """The mutation of a sink's row that sets columns of it."""
    row = MergedRow(TABLE, (sink,), ("sink",), {})
    return encoded([RowMutation(operation, TABLE, ("sink", *values), (sink, *values.values()), row)])


def lacks(row: Read, sink: str, reasons: Mapping[str, str]) -> list[Message]:
    """The mutation that names tables as incomplete, with reasons; none if all have one, because that is kept.

    Args:
        row: as it is.
        sink: its key.
        reasons: by table.
    """
    found: dict[str, str] = orjson.loads(row[_INCOMPLETE]) if row[_INCOMPLETE] else {}
    if reasons.keys() <= found.keys():
        return []
    return row_mutation(UPDATE, sink, {"incomplete": orjson.dumps({**reasons, **found}).decode()})


def _position(row: Read) -> UnitPosition:
    return UnitPosition(int(row[1]), int(row[2]))


STARTS_OVER = "give the sink another sink.name, which applies every epoch that is kept again, over what is there."

CONTINUES_ELSEWHERE = (
    "Give the sink another sink.name, which delivers every epoch that is kept; or restore a newer state."
)
