"""The maintenance of tables of Iceberg, by the actions and the API that its own procedures call.

See https://iceberg.apache.org/docs/latest/maintenance/. The numbers of the last epochs are properties of snapshots. The
snapshot of a compaction gets them all, so that older ones can expire. Before one expires that alone has such a number,
an empty snapshot gets them all.

Each commit writes the list of all snapshots again. Of very many, only those of the last hour stay, and those that have
a tag, as one of each minute has for a published cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import Row, SparkSession

from spark_sink.errors import SinkError
from spark_sink.sinks.tables.formats.iceberg import IDENTITY, IcebergStore, removes_files
from spark_sink.sinks.tables.formats.session import OWN
from spark_sink.sinks.tables.lake_table import text
from spark_sink.sinks.tables.maintenance.table_files import TableFiles
from spark_sink.sinks.tables.maintenance.upkeep import Upkeep

_REWRITE: Mapping[str, str] = {"delete-file-threshold": "5"}
"""Options of a compaction: a file whose rows five files of deletes name is written again without them."""

_AGE, _USUAL_AGE = "history.expire.max-snapshot-age-ms", 5 * 24 * 3_600_000
"""The property of a table that says how long its snapshots are kept, and what holds where it is not set."""


_MANY = 1000
"""Snapshots older than an hour, without those that have a tag, that are too many."""

_HOUR = 3_600_000
"""The least milliseconds that readers have."""

_SKEW = 60_000
"""Milliseconds by which Iceberg lets a snapshot be older than its parent: clocks differ."""


@dataclass(frozen=True, slots=True)
class KeptEpoch:
    """The last epoch of a consumer, as properties of one snapshot keep it.

    Attributes:
        properties: the number, and the identity if there is one.
        at: the time of the newest snapshot that has them, Unix milliseconds.
    """

    properties: Mapping[str, str]
    at: int


class IcebergUpkeep(Upkeep):
    """Tables of Iceberg."""

    def __init__(self, spark: SparkSession, store: IcebergStore) -> None:
        self._spark = spark
        self._store = store

    def files(self, name: str) -> TableFiles:
        """From the summary of the current snapshot."""
        snapshot = self._table(name).currentSnapshot()
        summary: dict[str, str] = dict(snapshot.summary()) if snapshot is not None else {}
        counts = (summary.get(f"total-{what}", 0) for what in ("data-files", "files-size", "delete-files"))
        return TableFiles(*map(int, counts))

    def compact(self, name: str) -> None:
        """Each snapshot has the last epochs of all that write the table."""
        numbers = _numbers(self._kept(name))
        self._store.rewrite_files(name, _REWRITE, numbers)
        self._store.remove_dangling_deletes(name, numbers)

    def expire(self, name: str, keep: int, now: int) -> None:
        """By ``expireSnapshots``; tags of cuts are respected. Nothing expires in a table that keeps all its files.

        What expires is no ancestor of the current snapshot any more, nor is what is before it: the last epoch of a
        consumer that has ended would be gone with it.
        """
        table = self._table(name)
        if not removes_files(table):
            return
        age = max(keep, int(table.properties().getOrDefault(_AGE, str(_USUAL_AGE))))
        if self.has_many_versions(name, now):
            age = _HOUR
        kept = self._kept(name)
        if any(one.at < now - age + _SKEW for one in kept):
            append = table.newFastAppend()
            for key, value in _numbers(kept).items():
                append = append.set(key, value)
            append.commit()
        table.expireSnapshots().expireOlderThan(now - age).commit()

    def has_many_versions(self, name: str, now: int) -> bool:
        """Not if a property of the table says how long they are kept, or that all are."""
        table = self._table(name)
        if len(table.snapshots()) <= _MANY or table.properties().containsKey(_AGE) or not removes_files(table):
            return False
        target = self._store.target(name)
        self._store.refresh(target)
        found = self._spark.sql(
            f"SELECT count(*) FROM {target}.snapshots LEFT ANTI JOIN {target}.refs USING (snapshot_id)"
            f" WHERE committed_at < timestamp_millis({now - _HOUR})"
        ).first()
        return found is not None and int(found[0]) > _MANY

    def is_created(self, name: str) -> bool:
        """By a property of the table."""
        return self._store.is_created(name)

    def _kept(self, name: str) -> Sequence[KeptEpoch]:
        """The largest epoch of each consumer in the history of the current snapshot.

        It need not be the newest one's: a compaction commits the epochs that there were when it began.
        """
        target = self._store.target(name)
        self._store.refresh(target)
        rows = self._spark.sql(
            f"SELECT key, max(struct(CAST(value AS BIGINT) AS epoch, summary[key || '{IDENTITY}'] AS identity,"
            " unix_millis(committed_at) AS at)) AS last FROM ("
            f"SELECT s.committed_at, s.summary, explode(s.summary) AS (key, value) FROM {target}.history h"
            f" JOIN {target}.snapshots s USING (snapshot_id) WHERE h.is_current_ancestor)"
            f" WHERE startswith(key, {text(OWN)}) AND NOT endswith(key, '{IDENTITY}') GROUP BY key"
        ).collect()
        return [_kept_epoch(row["key"], row["last"]) for row in rows]

    def _table(self, name: str) -> JavaObject:
        table = self._store.loaded(name)
        if table is None:
            raise SinkError(f"there is no table {self._store.target(name)} any more")
        return table


def _numbers(kept: Iterable[KeptEpoch]) -> Mapping[str, str]:
    """The properties of a snapshot that has the last epochs of all consumers."""
    return {key: value for one in kept for key, value in one.properties.items()}


def _kept_epoch(progress: str, last: Row) -> KeptEpoch:
    numbers = {progress: str(last["epoch"])}
    if last["identity"] is not None:
        numbers[f"{progress}{IDENTITY}"] = last["identity"]
    return KeptEpoch(numbers, last["at"])
