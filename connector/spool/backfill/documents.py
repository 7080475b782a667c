"""The documents of a backfill, in its own spool below the change stream's.

They are::

    backfills/requests.json         which tables users have stopped, or want to have read again
    backfills/<n>/announced.json    the tables, before the timestamp is chosen; replaced by backfill.json
    backfills/<n>/backfill.json     timestamp, tables, why; written once, before anything is read
    backfills/<n>/spool.json        the header of its spool, whose epochs are partitions of tables
    backfills/<n>/plans/<t>-<k>.json  plan k of table t: session, transaction and partition tokens; written once
    backfills/<n>/progress.json     a report of each table's state; derived from the manifests
    backfills/<n>/lost.json         why it cannot be finished at its timestamp; written once, by the first to find out

An epoch's manifest names the table, plan and partition that it holds. So what is left to read is known from the
plans and the manifests, whatever was killed.
"""

from typing import Literal

from pydantic import Field

from connector.spool.manifest import Document, DocumentPart, Timestamp

FILTERED_VERSION = 2
"""Version of a backfill of which a table has a condition: an older program would read all of the table's rows."""

Why = Literal["start", "command", "repair"]
"""``start``: the spool was created with it; ``command``: it was made later; ``repair``: it has only rows that differed
at the destination, and was filled before it was recorded."""

TableState = Literal["planned", "reading", "read", "done", "failed", "stopped"]
"""``read``: all is in the spool; ``done``: the sink has delivered it; ``failed``: with the reason; ``stopped``: a user
has stopped it, which no report in the spool says, but the requests beside it do."""


class BackfillTable(DocumentPart):
    """A table of a backfill.

    Attributes:
        table: its name in the source.
        schema_key: of the schema with the columns that are read.
        where: the condition in SQL that its rows satisfy; empty if all are read.
    """

    table: str
    schema_key: str
    where: str = ""


class BackfillAnnouncement(Document):
    """``announced.json``: the tables of a backfill that is being recorded."""

    tables: tuple[str, ...]


class Backfill(Document):
    """``backfill.json``.

    Attributes:
        number: of the backfill, from 1.
        timestamp: the tables' rows as of it, Unix nanoseconds, whole microseconds.
        why: what started it.
        dialect: as INFORMATION_SCHEMA names it.
        continues: the backfill whose unfinished tables it has, or 0.
        version_retention_period: of the database when it was recorded: how long it may take from the timestamp on.
    """

    number: int = Field(ge=1)
    timestamp: Timestamp
    why: Why
    dialect: str
    tables: tuple[BackfillTable, ...]
    continues: int = 0
    version_retention_period: str = "1h"
    recorded_at: Timestamp

    @property
    def is_repair(self) -> bool:
        """True if it has only rows that differed at the destination."""
        return self.why == "repair"

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions of the tables that have one."""
        return {table.table: table.where for table in self.tables if table.where}

    @property
    def kind(self) -> str:
        """Its name for people: backfill or repair."""
        return "repair" if self.is_repair else "backfill"


class PartitionPlan(Document):
    """The partitions of a table, as Spanner divided it in one read-only transaction.

    Attributes:
        table: its name in the source.
        plan: from 1; a later plan replaces the earlier ones.
        partitions: :meth:`connector.spanner.snapshot.partitions.SnapshotPartition.to_json` of each.
    """

    table: str
    plan: int = Field(ge=1)
    partitions: tuple[str, ...]


class Lost(Document):
    """``lost.json``: why a backfill cannot be finished at its timestamp.

    Attributes:
        why: the reason.
        recorded_at: when it was written.
        sink: the sink that had got some of the rows and was forgotten since; empty if there is none.
    """

    why: str
    recorded_at: Timestamp
    sink: str = ""


class TableProgress(DocumentPart):
    """The progress of a table; ``partitions`` of its plan are in the spool, with so many rows and bytes."""

    table: str
    state: TableState
    partitions: int = 0
    planned: int = 0
    rows: int = 0
    bytes: int = 0
    why: str = ""


class BackfillProgress(Document):
    """``progress.json``.

    Attributes:
        updated: when it was written.
        tables: in the order in which they are read.
        lost: whether it cannot be finished at its timestamp; what is left is read at another one.
        why_lost: the reason; empty if Spanner no longer retains the rows' versions.
        forgotten: the sink that had got some of the rows and was forgotten since; empty if there is none.
    """

    updated: Timestamp
    tables: tuple[TableProgress, ...]
    lost: bool = False
    why_lost: str = ""
    forgotten: str = ""

    @property
    def is_done(self) -> bool:
        """True if every row is delivered."""
        return all(table.state == "done" for table in self.tables)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The tables of which rows may still be delivered."""
        return tuple(table.table for table in self.tables if table.state != "done")
