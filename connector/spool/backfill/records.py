"""Records backfills below a spool, and finds them: which there are, how far each is, which tables are not done."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.documents import (
    FILTERED_VERSION,
    Backfill,
    BackfillAnnouncement,
    BackfillProgress,
    BackfillTable,
    Lost,
    PartitionPlan,
    TableProgress,
    Why,
)
from connector.spool.backfill.requests import stopped_tables, with_stops
from connector.spool.destinations import sinks_of
from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, SpoolHeader, schema_path, to_json
from connector.spool.storage.store import contents
from connector.spool.writing import initialize

_ANNOUNCEMENT = "announced.json"
_DOCUMENT = "backfill.json"
_PROGRESS = "progress.json"
_LOST = "lost.json"


@dataclass(frozen=True, slots=True)
class RecordedBackfill:
    """A backfill, its spool, and its state as it was last reported.

    Attributes:
        document: the backfill.
        spool: its own.
        progress: its state.
        is_bounded: whether the stream is of some placements, so that conditions are of the rows in these.
    """

    document: Backfill
    spool: Spool
    progress: BackfillProgress
    is_bounded: bool = False

    @property
    def is_open(self) -> bool:
        """True if it can be continued at its timestamp and has rows that are not delivered."""
        return not self.progress.is_done and not self.progress.lost

    @property
    def is_read(self) -> bool:
        """True if all rows are in its spool."""
        return all(table.state in ("read", "done") for table in self.progress.tables)

    @property
    def is_stopped(self) -> bool:
        """True if users have stopped all tables that are not done."""
        left = [table.state for table in self.progress.tables if table.state != "done"]
        return bool(left) and all(state == "stopped" for state in left)

    @property
    def whole_tables(self) -> frozenset[str]:
        """The tables of which every row is delivered. A condition omits rows, and a repair has only some.

        Of a stream of some placements each table has a condition, which bounds it to them and omits nothing.
        """
        if self.document.is_repair:
            return frozenset()
        done = frozenset(table.table for table in self.progress.tables if table.state == "done")
        if self.is_bounded:
            return done
        conditions = self.document.conditions.items()
        return done.difference(table for table, where in conditions if where.strip().upper() != "TRUE")


def spool_path(path: str, number: int) -> str:
    """The path or URL of a backfill's spool."""
    return f"{path}/backfills/{number}"


def spool_of(spool: Spool, number: int) -> Spool:
    """A backfill's own spool."""
    return Spool.at(spool_path(spool.path, number))


def backfills(spool: Spool) -> list[RecordedBackfill]:
    """The recorded backfills of a spool, in order.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    found: list[RecordedBackfill] = []
    while (one := find(spool, len(found) + 1)) is not None:
        found.append(one)
    return found


def find(spool: Spool, number: int) -> RecordedBackfill | None:
    """The backfill of that number, or None."""
    own = spool_of(spool, number)
    try:
        document = document_of(own)
    except FileNotFoundError:
        return None
    progress = progress_of(own, document)
    if not progress.is_done and not document.is_repair:
        progress = with_stops(progress, stopped_tables(spool))
    return RecordedBackfill(document, own, progress, bool(document.conditions) and _is_of_placements(spool))


def _is_of_placements(spool: Spool) -> bool:
    """True if the change stream is read in some placements only."""
    try:
        return bool(spool.header().placements)
    except FileNotFoundError:
        return False


def document_of(own: Spool) -> Backfill:
    """The backfill of a spool of its own.

    Raises:
        FileNotFoundError: there is none.
        SpoolError: its document is corrupt or cannot be read.
    """
    return own.document(_DOCUMENT, Backfill, "it is not a valid backfill", version=FILTERED_VERSION)


def progress_of(own: Spool, document: Backfill) -> BackfillProgress:
    """The last report of a backfill's state, and whether it is lost."""
    found = own.find(_PROGRESS, BackfillProgress, "it is not a valid report")
    if found is None:
        tables = tuple(TableProgress(table=table.table, state="planned") for table in document.tables)
        found = BackfillProgress(updated=document.recorded_at, tables=tables)
    if found.is_done or (lost := _lost(own)) is None:
        return found
    return found.model_copy(update={"lost": True, "why_lost": lost.why, "forgotten": lost.sink})


def _lost(own: Spool) -> Lost | None:
    return own.find(_LOST, Lost, "it is not a valid reason")


def write_progress(own: Spool, progress: BackfillProgress) -> None:
    """Replaces the report of a backfill's state."""
    own.storage.replace(_PROGRESS, to_json(progress))


def mark_lost(own: Spool, why: str, *, now: int) -> None:
    """Records that a backfill cannot be finished at its timestamp: the next run reads what is left at another one.

    The first reason stays. Any process may call it, beside the one that reads.

    Raises:
        SpoolError: the disk refuses.
    """
    with suppress(FileExistsError):
        own.storage.create(_LOST, to_json(Lost(why=why, recorded_at=now)))


def mark_forgotten(own: Spool, sink: str, *, now: int) -> None:
    """Marks a backfill as lost, if it is not, and records the sink that has got some of its rows and is forgotten.

    Raises:
        SpoolError: the document is corrupt or cannot be read, or the disk refuses.
    """
    lost = _lost(own) or Lost(why=f"sink {sink} was forgotten, which had got some of the rows", recorded_at=now)
    own.storage.replace(_LOST, to_json(lost.model_copy(update={"sink": sink})))


def unfinished_tables(spool: Spool, sink: str = "") -> frozenset[str]:
    """The tables that may still get rows of a backfill: a DELETE in one must be remembered until then.

    A table is omitted only after all its rows are delivered, and it counts before the backfill's timestamp is chosen. A
    backfill whose timestamp is no longer retained counts until another one continues it.

    Args:
        spool: the change stream's.
        sink: omits backfills of which another sink has got rows, because this one gets none; empty to omit none.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    return unfinished_among(spool, backfills(spool), sink)


def unfinished_among(spool: Spool, known: Sequence[RecordedBackfill], sink: str = "") -> frozenset[str]:
    """As :func:`unfinished_tables`, of backfills that were just read."""
    left = (one for one in unfinished_of(known) if not (sink and _is_of_another(one, sink)))
    recorded = (table for one in left for table in one.progress.unfinished)
    return frozenset([*recorded, *_announced(spool_of(spool, len(known) + 1))])


def unfinished_of(known: Collection[RecordedBackfill]) -> list[RecordedBackfill]:
    """The backfills that are not done and that no other continues, in order; no two of them have the same table."""
    continued = {one.document.continues for one in known}
    return [one for one in known if not one.progress.is_done and one.document.number not in continued]


def _is_of_another(one: RecordedBackfill, sink: str) -> bool:
    """True if another sink than this one has got rows of a backfill, also if it was forgotten since.

    No other sink gets the rest at that timestamp. Before a sink has any it may still change.
    """
    has_rows = {name for name in sinks_of(one.spool) if (known := consumers.find(one.spool, name)) and known.epoch > 0}
    owners = has_rows | ({one.progress.forgotten} - {""})
    return bool(owners) and sink not in owners


def unfinished_names(known: Sequence[RecordedBackfill]) -> Sequence[str]:
    """The backfills that are not done and that no other continues, such as ``repair 2``."""
    return tuple(f"{one.document.kind} {one.document.number}" for one in unfinished_of(known))


def unfinished_timestamps(spool: Spool, table: str) -> frozenset[int]:
    """The timestamps of the backfills of which rows of a table may still be delivered.

    Without that of a backfill whose timestamp is being chosen, and of those that another one continues.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    left = unfinished_of(backfills(spool))
    return frozenset(one.document.timestamp for one in left if table in one.progress.unfinished)


def _announced(own: Spool) -> tuple[str, ...]:
    """The tables of a backfill that is being recorded."""
    found = own.find(_ANNOUNCEMENT, BackfillAnnouncement, "it is not a valid announcement")
    return found.tables if found else ()


def record(
    spool: Spool,
    header: SpoolHeader,
    tables: Sequence[TableSchema],
    *,
    timestamp: Callable[[], int],
    as_of: Callable[[int], Sequence[TableSchema]] | None = None,
    after: int | None = None,
    why: Why,
    dialect: str,
    now: int,
    continues: int = 0,
    version_retention_period: str = "1h",
    conditions: Mapping[str, str] | None = None,
    fill: Callable[[Spool, Backfill], None] | None = None,
) -> Backfill:
    """Records a new backfill, durably, before anything of it is read; or before anything of it is delivered.

    Args:
        spool: the change stream's spool.
        header: its header.
        tables: the schemas of the tables, in the order in which they are to be read.
        timestamp: chooses the timestamp by Spanner's clock, Unix nanoseconds, whole microseconds. It is
            called once the tables count as unfinished, so that a sink notes each later change that it delivers.
        as_of: returns the schemas as of the timestamp, by which the tables are read; those that are not among
            ``tables`` are ignored. None if ``tables`` has them.
        after: how many backfills the caller has found, if it has decided by them.
        why: what started it.
        dialect: as INFORMATION_SCHEMA names it.
        now: Unix nanoseconds.
        continues: the backfill whose unfinished tables these are, or 0.
        version_retention_period: of the database.
        conditions: in SQL, by the names of the tables whose rows must satisfy them.
        fill: writes all epochs of the backfill into its spool, before it is recorded. None: they are read later.

    Raises:
        SpoolInUseError: another process records one at the same time, or has done so since.
        SpoolError: the disk refuses.
    """
    taken = f"another process records a backfill in the spool at {spool.path}"
    with spool.storage.locked("backfills/recording.lock", taken) as check:
        known = len(backfills(spool))
        if after not in (None, known):
            raise SpoolInUseError(f"another process has recorded a backfill in the spool at {spool.path} meanwhile")
        number = known + 1
        own = spool_of(spool, number)
        own.storage.replace(
            _ANNOUNCEMENT, to_json(BackfillAnnouncement(tables=tuple(schema.table for schema in tables)))
        )
        try:
            at = timestamp()
            if as_of is not None:
                names = [schema.table for schema in tables]
                of_name = {schema.table: schema for schema in as_of(at)}
                tables = [of_name[name] for name in names if name in of_name]
            for schema in tables:  # in the stream's spool too: it is where dead letters are replayed with
                spool.storage.put(schema_path(schema.key), schema.to_json())
            check()
            _discard_unrecorded(own)
            initialize(
                own,
                header.source,
                at,
                f"backfill {number}",
                tables,
                default_schema=header.default_schema,
                before=contents(own.storage, "spool.json"),  # of a process that was killed before the last write
            )
            where = conditions or {}
            document = Backfill(
                version=FILTERED_VERSION if any(schema.table in where for schema in tables) else VERSION,
                number=number,
                timestamp=at,
                why=why,
                dialect=dialect,
                tables=tuple(
                    BackfillTable(table=schema.table, schema_key=schema.key, where=where.get(schema.table, ""))
                    for schema in tables
                ),
                continues=continues,
                version_retention_period=version_retention_period,
                recorded_at=now,
            )
            if fill is not None:
                fill(own, document)
            check()
            _check_announced(own, number)
        except SpoolInUseError:  # the announcement may be the other process's by now; else a sink withdraws it
            raise
        except Exception:
            with suppress(SpoolInUseError):  # else what is there may be of the process that has taken the lease over
                check()
                _discard_unrecorded(own)
                own.storage.delete(_ANNOUNCEMENT)
            raise
        _write_document(own, document)
    return document


def _write_document(own: Spool, document: Backfill) -> None:
    """Writes a backfill's document, once.

    Raises:
        SpoolInUseError: another process has, because the lock in a bucket was not renewed in time.
    """
    data = to_json(document)
    try:
        own.storage.create(_DOCUMENT, data)
    except FileExistsError:
        if contents(own.storage, _DOCUMENT) != data:  # else it is this process's own, whose answer was lost
            raise SpoolInUseError(f"another process has recorded backfill {document.number} meanwhile") from None


def _check_announced(own: Spool, number: int) -> None:
    """Checks that no sink has withdrawn the announcement meanwhile: it would remember nothing for the backfill.

    Raises:
        SpoolInUseError: one has, because the lock in a bucket was not renewed in time.
    """
    if not own.storage.exists(_ANNOUNCEMENT):
        raise SpoolInUseError(f"the recording of backfill {number} took so long that it was withdrawn")


def _discard_unrecorded(own: Spool) -> None:
    """Deletes what a process has written of a backfill that it did not record, because it was killed."""
    for folder in ("manifests", "plans", "segments"):
        own.storage.delete(*(f"{folder}/{name}" for name in own.storage.list(folder)))
    own.storage.delete(_PROGRESS)


def check_movable(spool: Spool, header: SpoolHeader) -> None:
    """Checks that a spool without epochs can get another start: a backfill of it has every row up to its start only.

    Raises:
        ConfigurationError: it has a backfill, after which changes would be missing.
    """
    if backfills(spool):
        error = (
            f"source.start: the spool at {spool.path} has a backfill, which the changes from"
            f" {format_rfc3339(header.start)} on must follow: leave it at {header.requested_start}, or choose another"
            " spool.path and another spark.checkpoint"
        )
        raise ConfigurationError([error])


def check_not_continued(spool: Spool, number: int) -> None:
    """Checks that no later backfill has taken over the remaining rows of one. The caller holds the lock of backfills.

    Raises:
        SpoolError: one does. Rows of the earlier timestamp, delivered beside or after it, could restore deleted ones.
    """
    for one in backfills(spool):
        if one.document.continues == number:
            raise SpoolError(
                f"backfill {number} of the spool at {spool.path} is continued by backfill {one.document.number}",
                hint="`spanner-cdc backfill CONFIG` finishes that one.",
            )


def withdraw(spool: Spool) -> None:
    """Removes what a recording of a backfill that was killed has left; nothing while a process records one.

    Raises:
        SpoolError: the disk refuses.
    """
    own = spool_of(spool, len(backfills(spool)) + 1)
    if not own.storage.exists(_ANNOUNCEMENT):
        return
    taken = "a backfill is being recorded"
    with suppress(SpoolInUseError), spool.storage.locked("backfills/recording.lock", taken) as check:
        if not own.storage.exists(_DOCUMENT):
            check()
            _discard_unrecorded(own)
            own.storage.delete(_ANNOUNCEMENT)


def plans(own: Spool, tables: Iterable[BackfillTable]) -> dict[str, PartitionPlan]:
    """The newest plan of each table that has one.

    Raises:
        SpoolError: a plan is corrupt or cannot be read.
    """
    numbers = _plan_numbers(own)
    found = {}
    for index, table in enumerate(tables):
        if index in numbers:
            path = _plan_path(index, numbers[index])
            found[table.table] = own.document(path, PartitionPlan, "it is not a valid plan")
    return found


def write_plan(own: Spool, index: int, plan: PartitionPlan) -> None:
    """Writes the plan of a backfill's table, durably.

    Raises:
        SpoolError: the disk refuses, or there is one of that number.
    """
    path = _plan_path(index, plan.plan)
    try:
        own.storage.create(path, to_json(plan))
    except FileExistsError:
        if contents(own.storage, path) != to_json(plan):
            raise SpoolError(f"another process has written {own.storage.full(path)}") from None


def _plan_numbers(own: Spool) -> dict[int, int]:
    """The number of the newest plan of each table, by the table's index."""
    numbers: dict[int, int] = {}
    for name in own.storage.list("plans"):
        index, _, number = name.removesuffix(".json").partition("-")
        if index.isdecimal() and number.isdecimal():
            numbers[int(index)] = max(numbers.get(int(index), 0), int(number))
    return numbers


def _plan_path(index: int, number: int) -> str:
    return f"plans/{index:05d}-{number}.json"


def healing(known: Iterable[RecordedBackfill], watermark_high: int, tables: Collection[str]) -> tuple[str, ...]:
    """The tables among ``tables`` whose rows a finished backfill has read after a gap that ends at ``watermark_high``.

    Rows that were deleted within the gap are not found by it: they stay at the destination. A repair has only rows that
    differed, and is no such backfill; nor is one that a condition has filtered.
    """
    healed = {table for one in known if one.document.timestamp > watermark_high for table in one.whole_tables}
    return tuple(sorted(healed.intersection(tables)))
