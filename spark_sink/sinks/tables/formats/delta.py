"""Tables of Delta: the last epoch is the version of a ``SetTransaction`` action in the same commit.

See https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch. Delta itself skips a
commit whose version it has. An append has these options by itself, so that several tables can be appended to at a
time; a statement takes them from the session. The epoch's identity is in the commit's ``userMetadata``, and what the
user has set for it follows there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from spark_sink.errors import SinkError
from spark_sink.session_options import conf_or_none
from spark_sink.sinks.tables.formats.jvm import has_jvm, java_classes, java_session
from spark_sink.sinks.tables.formats.retentions import longer
from spark_sink.sinks.tables.formats.session import OWN, session_options
from spark_sink.sinks.tables.formats.store import PreparedTable, TableStore
from spark_sink.sinks.tables.lake_table import CREATED, LakeTable, quoted, text
from spark_sink.sources.changes.offsets import Offset

_CONFIG = "spark.databricks.delta.write"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

_SEARCHED = (1, 30, 1000)
"""The number of a table's newest commits, others' included, that are searched for the sink's last one."""

_COMMITTED: dict[tuple[str, str], Offset] = {}
"""The last commits of this process, by table and name. A table's history is read only where there is none."""

_FOLDERS: dict[str, str] = {}
"""The folder that each table of a catalog had when it was last looked up: each micro-batch that writes it does so."""


class DeltaStore(TableStore):
    """Tables of Delta."""

    provider = "delta"
    log = "_delta_log"
    before_rename = "after SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'): "
    merged: ClassVar[Mapping[str, str]] = {"delta.enableDeletionVectors": "true"}

    def target(self, name: str) -> str:
        """By its folder, or by its name in the catalog."""
        if self._options.path is None:
            return self._in_database(name)
        return f"delta.{quoted(f'{self._options.path}/{name}')}"

    def _prepare(self, table: LakeTable) -> PreparedTable:
        """Also raises the retentions of a table of the sink that was created when cuts were kept for a shorter time."""
        prepared = super()._prepare(table)
        found = self._table_properties(table.name) if self._options.kept else {}
        if found.get(CREATED) == "true" and (raised := longer(found, self._options.kept)):
            texts = ", ".join(f"{text(name)} = {text(value)}" for name, value in raised.items())
            self._spark.sql(f"ALTER TABLE {self.target(table.name)} SET TBLPROPERTIES ({texts})")
        return prepared

    def state(self, name: str) -> str | None:
        """The metadata of the newest version; where the folder of a table is not known, finding it takes too long."""
        if self._options.path is None or not has_jvm(self._spark):
            return None
        snapshot = self.snapshot(self.folder(name))
        return str(snapshot.metadata().json()) if int(snapshot.version()) >= 0 else None

    def applied(self, name: str) -> Offset:
        """From the state of the table, which keeps the last version of each application; the identity is searched.

        Through Spark Connect the state cannot be read: there the history alone says it.

        Raises:
            SinkError: the history that is searched has no commit of the sink's, and does not begin with the table.
        """
        if not has_jvm(self._spark):
            return self._last_in_history(name)
        snapshot = self.snapshot(self.folder(name))
        self._ids[name] = str(snapshot.metadata().id())
        version = snapshot.transactions().get(self._progress)
        if not version.isDefined():
            return Offset(0)
        epoch = int(version.get())
        known = _COMMITTED.get((self.target(name), self._progress))
        if known is None or known.epoch != epoch:
            known = Offset(epoch, at=self._identity(name, epoch))
            self.committed(name, known)
        return known

    def has(self, name: str, epoch: int) -> bool:
        """By the snapshot that the commit has left."""
        if not has_jvm(self._spark):
            return False
        log = java_classes(self._spark).org.apache.spark.sql.delta.DeltaLog
        known = log.forTable(java_session(self._spark), self.known_folder(name)).unsafeVolatileSnapshot()
        version = known.transactions().get(self._progress)
        return bool(version.isDefined()) and int(version.get()) == epoch

    def committed(self, name: str, last: Offset) -> None:
        """Keeps it, so that the history need not be searched for it."""
        _COMMITTED[self.target(name), self._progress] = last

    def _identity(self, name: str, epoch: int) -> str:
        """The identity of an epoch, from its commit; empty if that has expired or has none."""
        for limit in _SEARCHED:
            _, commits = self._own_commits(name, limit)
            if found := [commit.at for commit in commits if commit.epoch == epoch and commit.at]:
                return found[0]
        return ""

    def _last_in_history(self, name: str) -> Offset:
        for limit in _SEARCHED:
            is_whole, commits = self._own_commits(name, limit)
            if commits or is_whole:
                return max(commits, key=lambda commit: commit.epoch, default=Offset(0))
        raise SinkError(
            f"the last {limit} commits of {self.target(name)} do not say which epochs it has",
            hint="Merge one micro-batch in a session that is not one of Spark Connect: that reads the table's state.",
        )

    def _own_commits(self, name: str, limit: int) -> tuple[bool, list[Offset]]:
        """True if the newest commits are all that the table ever had; and the epochs of the sink's own among them."""
        rows = self._spark.sql(f"DESCRIBE HISTORY {self.target(name)} LIMIT {limit}").select("version", "userMetadata")
        commits = rows.collect()
        texts = (str(row["userMetadata"] or "").split(" ") for row in commits)
        own = [Offset(int(words[1]), at="".join(words[2:3])) for words in texts if words[:1] == [self._progress]]
        return any(row["version"] == 0 for row in commits), own

    def append(self, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        """Appends by the names of the columns."""
        del first
        options = {"txnAppId": self._progress, "txnVersion": str(last.epoch), "userMetadata": self._metadata(last)}
        writer = rows.write.format("delta").mode("append").options(**options)
        if self._options.path is None:
            writer.saveAsTable(self._in_database(name))
        else:
            writer.save(self.folder(name))

    @contextmanager
    def committing(self, last: Offset) -> Iterator[None]:
        """By options of the session."""
        options = {
            f"{_CONFIG}.txnAppId": self._progress,
            f"{_CONFIG}.txnVersion": str(last.epoch),
            _METADATA: self._metadata(last),
        }
        with session_options(self._spark, options):
            yield

    def _metadata(self, last: Offset) -> str:
        """The metadata of a commit: the epoch, and what the user has set."""
        users = conf_or_none(self._spark, _METADATA)
        own = f"{self._progress} {last.epoch} {last.at}"
        return f"{own} {users}" if users and not users.startswith(OWN) else own

    def snapshot(self, folder: str) -> JavaObject:
        """The newest state of the table in a folder, also if another process has made it."""
        log = java_classes(self._spark).org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(java_session(self._spark), folder).productElement(1)

    def folder(self, name: str) -> str:
        """The folder of a table."""
        if self._options.path is not None:
            return f"{self._options.path}/{name}"
        target = self.target(name)
        found = str(self._spark.sql(f"DESCRIBE DETAIL {target}").first()["location"])  # type: ignore[index]
        _FOLDERS[target] = found
        return found

    def known_folder(self, name: str) -> str:
        """The folder that a table had when it was last looked up."""
        return _FOLDERS.get(self.target(name)) or self.folder(name)
