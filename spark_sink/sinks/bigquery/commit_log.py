"""Records which streams of a micro-batch are committed, so that rows are appended to BigQuery exactly once.

Tasks write a micro-batch's rows into pending streams, new ones in each attempt, whose rows are invisible. When all
tasks have ended, the names of a table's streams are recorded once and then committed together. Another process, after a
crash or beside this one, finds the names and commits the same streams, which does nothing the second time. So a table's
rows of a micro-batch appear once, and all at the same time; and a micro-batch holds whole epochs.

A file of dead letters that is replayed has an entry likewise, from before its stream is committed, or its staging table
merged, until the file is removed.

Entries are kept for :data:`KEPT` epochs after the sink has recorded that their micro-batch is done, because a suspended
process may still resume. No streams are entered for a micro-batch that is recorded as done.
"""

from hashlib import blake2b

from connector.errors import SpoolError, TakenOverError
from connector.spool.consumers import done
from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json
from spark_sink.sinks.bigquery.config import CONSUMER

KEPT = 600
"""Epochs: ten minutes at one epoch a second, ten hours of an idle stream."""

_FOLDER = "bigquery"


class StreamsEntry(Document):
    """A table's streams of a micro-batch, and whether they are known to be committed.

    ``at`` is the identity of the micro-batch's first epoch; empty in entries of versions that did not record it.
    ``dead_letters`` are the prefixes of the names of the dead letters that belong to these streams; None in entries of
    versions that had discarded all others before.
    """

    table: str
    streams: tuple[str, ...]
    committed: bool = False
    at: str = ""
    dead_letters: tuple[str, ...] | None = None


class ReplayEntry(Document):
    """The stream or staging table of a file of dead letters, and those that were rejected again, with the reasons.

    ``stream`` is the pending stream's name, or the staging table as text; ``committed`` says that it is visible.
    """

    stream: str
    refused: tuple[tuple[int, str], ...]
    committed: bool = False


class CommitLog:
    """The entries of a sink's micro-batches, by their first epoch, and of files of dead letters, by name.

    Args:
        spool: the spool.
        name: the sink's.

    Raises:
        SpoolError: from every method, where an entry is corrupt, or cannot be read or written.
    """

    def __init__(self, spool: Spool, name: str = CONSUMER) -> None:
        self._spool = spool
        self._name = name
        self._folder = _FOLDER if name == CONSUMER else f"{_FOLDER}/sinks/{name}"

    def find(self, first: int, table: str, at: str = "") -> StreamsEntry | None:
        """A table's entry, or None: then no row that was written until now is or will be visible.

        Raises:
            SpoolError: it is of another epoch with that number than the one with the identity ``at``.
        """
        path = self.path(first, table)
        entry = self._spool.find(path, StreamsEntry, "it names no streams")
        if entry is not None and "" not in (at, entry.at) and entry.at != at:
            raise SpoolError(
                f"{self._spool.storage.full(path)} is of another epoch {first} than the one in this spool, which was"
                " put back from an older copy",
                hint="Restore the newer copy; or remove that file, and rows of this micro-batch may appear twice.",
            )
        return entry

    def has_some(self, first: int) -> bool:
        """True if a micro-batch has entries."""
        return any(name.startswith(_prefix(first)) for name in self._spool.storage.list(self._folder))

    def enter(
        self,
        first: int,
        table: str,
        streams: tuple[str, ...],
        at: str = "",
        dead_letters: tuple[str, ...] | None = None,
    ) -> StreamsEntry:
        """Records the streams, unless some are recorded; returns the recorded entry.

        Raises:
            TakenOverError: the micro-batch is recorded as done: another sink has taken over.
        """
        entry = StreamsEntry(table=table, streams=streams, at=at, dead_letters=dead_letters)
        if done(self._spool, self._name) >= first:
            raise TakenOverError(f"another sink has delivered the epochs from {first} on meanwhile")
        try:
            self._spool.storage.create(self.path(first, table), to_json(entry))
        except FileExistsError:
            found = self.find(first, table, at)
            assert found is not None, "an entry is removed only when its micro-batch is done"
            return found
        return entry

    def committed(self, first: int, entry: StreamsEntry) -> None:
        """Records that an entry's streams are committed."""
        noted = entry.model_copy(update={"committed": True})
        self._spool.storage.replace(self.path(first, entry.table), to_json(noted))

    def find_replay(self, dead_letters: str) -> ReplayEntry | None:
        """The entry of a file of dead letters, or None: then no replay has appended or merged its rows."""
        return self._spool.find(self.replay_path(dead_letters), ReplayEntry, "it names no stream")

    def enter_replay(self, dead_letters: str, entry: ReplayEntry) -> None:
        """Records an entry; only one process replays at a time."""
        self._spool.storage.replace(self.replay_path(dead_letters), to_json(entry))

    def forget_replay(self, dead_letters: str) -> None:
        """Removes an entry, because the file no longer holds its dead letters."""
        self._spool.storage.delete(self.replay_path(dead_letters))

    def clear(self) -> None:
        """Removes the entries of all micro-batches, because the sink has nothing delivered that the spool knows of."""
        names = [name for name in self._spool.storage.list(self._folder) if name[:20].isdecimal()]
        self._spool.storage.delete(*(f"{self._folder}/{name}" for name in names))

    def path(self, first: int, table: str) -> str:
        """The document of a table's streams."""
        return f"{self._folder}/{_prefix(first)}{blake2b(table.encode(), digest_size=10).hexdigest()}.json"

    def replay_path(self, dead_letters: str) -> str:
        """The document of a file of dead letters."""
        return f"{self._folder}/{dead_letters}.json"

    def forget(self) -> None:
        """Removes the entries of micro-batches that ended long ago."""
        before = done(self._spool, self._name) - KEPT
        names = self._spool.storage.list(self._folder) if before > 0 else []
        old = [name for name in names if name[:20].isdecimal() and int(name[:20]) < before]
        self._spool.storage.delete(*(f"{self._folder}/{name}" for name in old))


def _prefix(first: int) -> str:
    return f"{first:020d}."
