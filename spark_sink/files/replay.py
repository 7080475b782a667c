"""Writes the file sink's dead letters once more, with the options that the sink has now, without Spark.

What can be encoded now goes into a file of its own in its minute's folder, whose name depends on the letters alone: a
replay that was killed writes the same file again. Events in it are older than those of files written since: a reader
has to go by the sort keys, as it has to anyway. Letters of a micro-batch that is not recorded as done stay, for the
sink will write it once more; so the sink must not run meanwhile. Letters of a spool before this one are written, too,
where this one has their schema.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.config.loading import Config
from connector.core.changes import integers
from connector.core.timestamps import MINUTE
from connector.errors import SpoolError
from connector.spool.consumers import find, sink_lock
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, tell
from connector.storage.locations import absolute
from spark_sink.files.config import CONSUMER, FilesConfig
from spark_sink.files.delivery import shape_of
from spark_sink.files.writer import FileWriter, by_series
from spark_sink.sink.dead_letters import DeadLetters, Replay
from spark_sink.sink.destination import destination_at
from spark_sink.sink.known_schemas import KnownSchemas
from spark_sink.sink.sifting import sifted

_ROW = "row"
"""The column that holds where a row stood among the letters."""


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """What writes a table's letters; the sink's lock is held meanwhile.

    Raises:
        SpoolError: the spool is not there, or the sink has never run with it.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: from the replay, where the destination refuses.
    """
    assert isinstance(config.sink, FilesConfig)
    spool = Spool.at(absolute(config.spool.path))
    try:
        spool.check_source(config.source.name)
    except FileNotFoundError:
        raise SpoolError(
            f"there is no spool at {spool.path}", hint="Set spool.path to the one that the letters are of."
        ) from None
    taken = "the sink must not run while letters are replayed, and it does: stop it, and replay again"
    with spool.storage.locked(sink_lock(CONSUMER), taken):
        consumer = find(spool, CONSUMER)
        yield _Letters(config, config.sink, spool, done=consumer.epoch if consumer else 0)


class _Letters:
    def __init__(self, config: Config, sink: FilesConfig, spool: Spool, *, done: int) -> None:
        self._spool = spool
        self._done = done
        endpoint = sink.endpoint or ""
        place = DeadLetters(absolute(sink.dead_letters), endpoint)
        destination = destination_at(absolute(sink.path), endpoint)
        self._spool_id = spool.header().spool_id
        self._schemas = KnownSchemas(spool)
        self._writer = FileWriter(spool, self._spool_id, destination, shape_of(config, sink), place)
        self._has_written: set[str] = set()

    def send(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]] | None:
        """Writes what can be encoded of a file of letters."""
        is_of_spool = name.startswith(f"{self._spool_id}_")
        if is_of_spool and pc.max(rows.column("epoch")).as_py() > self._done:
            return None  # the sink writes its micro-batch once more
        return self._schemas.sent(rows, lambda known: self._write(name, known))

    def _write(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        refused = self._refused(rows)
        indexes = np.setdiff1d(np.arange(rows.num_rows), [index for index, _ in refused])
        kept = rows.take(pa.array(indexes))
        minutes = integers(pc.list_element(kept.column("sort_keys"), 1).cast(pa.int64())) // MINUTE
        for minute in np.unique(minutes).tolist():
            of_minute = kept.filter(pa.array(minutes == minute))
            list(self._writer.write_rows([of_minute], minute, f"{name}_{_digest(of_minute)}", name))
        if len(indexes):
            self._has_written.add(rows.column("object")[0].as_py())
        return refused

    def _refused(self, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        refused: list[tuple[int, str]] = []
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        for series, some in by_series(numbered):
            numbers: Sequence[int] = some.column(_ROW).to_pylist()
            found = sifted(self._writer.encoding, series, some.drop_columns([_ROW])).refused
            refused += [(numbers[index], why) for index, why in found]
        return refused

    def tried(self, table: str, *, left: int) -> None:
        """A table whose last letter is written is not stopped any more."""
        report = report_of(self._spool, CONSUMER)
        if not left and table in self._has_written and table in report.stopped:
            tell(self._spool, CONSUMER, report.without(table))


def _digest(rows: pa.RecordBatch) -> str:
    """Of these rows: the same for the same."""
    digest = blake2b(digest_size=4)
    for uuid in rows.column("uuid").to_pylist():
        digest.update(uuid.encode())
    return digest.hexdigest()
