"""Versions of tables of Iceberg: the ids of snapshots, which tags keep from ``expire_snapshots``.

A tag is a commit to the table's metadata, so that not every cut gets one: once a minute the current snapshot of each
table that has changed since does. The age that Iceberg allows a tag counts from its snapshot, which may be current for
days: a tag is renewed before it would end too soon. Tags that have ended are removed by the commit of the next one.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from spark_sink.sinks.tables.cuts.versions import AT_A_TIME, Versions
from spark_sink.sinks.tables.formats.iceberg import IcebergStore, removes_files
from spark_sink.sinks.tables.table_faults import tried

_TAG = "spanner_cdc_cut"
"""The first word of a tag; the epoch follows, and the Unix milliseconds of its end."""

_MINUTE = 60_000
_HOUR = 60 * _MINUTE


class IcebergVersions(Versions):
    """Snapshot ids of Iceberg.

    Args:
        store: the tables.
        keep: the time for which snapshots are kept, in milliseconds.
    """

    def __init__(self, store: IcebergStore, keep: int) -> None:
        self._store = store
        self._keep = keep
        self._tagged: dict[str, tuple[int, int]] = {}
        self._next = 0

    def keep(self, versions: Mapping[str, int], epoch: int, now: int) -> None:
        """Tags snapshots, once a minute."""
        if now < self._next:
            return
        self._next = now + _MINUTE
        due = [name for name, version in versions.items() if not self._is_tagged(name, version, now)]
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            list(threads.map(lambda name: tried(name, self._tag, name, versions[name], epoch, now), due))

    def compact(self, name: str) -> None:
        """By the actions and the API that Iceberg's own procedures call; readers have an hour."""
        self._store.rewrite_files(name, {}, {})
        table = self._store.loaded(name)
        assert table is not None
        if removes_files(table):
            newest = int(table.currentSnapshot().timestampMillis())
            table.expireSnapshots().expireOlderThan(newest - _HOUR).commit()

    def _now(self, name: str) -> int | None:
        table = self._store.loaded(name)
        snapshot = table.currentSnapshot() if table is not None else None
        return int(snapshot.snapshotId()) if snapshot is not None else None

    def _is_tagged(self, name: str, version: int, now: int) -> bool:
        tagged, until = self._tagged.get(name, (0, 0))
        return tagged == version and until - now >= self._keep

    def _tag(self, name: str, version: int, epoch: int, now: int) -> None:
        """Tags a snapshot, and removes the tags that have ended."""
        table = self._store.loaded(name)
        snapshot = table.snapshot(version) if table is not None else None
        if table is None or snapshot is None:
            return  # it was dropped or expired meanwhile: whoever reads it is refused
        until = now + self._keep + self._keep // 4
        tag = f"{_TAG}_{epoch}_{until}"
        names = str(table.refs().keySet().toString()).strip("[]").split(", ")
        changes = table.manageSnapshots().createTag(tag, version)
        age = until - int(snapshot.timestampMillis())
        changes = changes.setMaxRefAgeMs(tag, max(age, self._keep))  # the clock of whoever made it may be ahead
        for ended in (one for one in names if one != tag and has_ended(one, now)):
            changes = changes.removeTag(ended)
        changes.commit()
        self._tagged[name] = version, until


def has_ended(tag: str, now: int) -> bool:
    """True if a tag of a cut has ended; ``now`` is Unix milliseconds."""
    first, _, rest = tag.rpartition("_")
    return first.startswith(f"{_TAG}_") and rest.isdecimal() and int(rest) < now
