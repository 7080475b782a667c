"""Replays the file sink's dead letters, with the present options of the sink, without Spark.

Events that can be encoded now go into a file of their own in the folder of their minute. Its name depends only on the
dead letters, so that a replay that was killed writes the same file again. Its events are older than those of files that
were written since: readers must order by the sort keys, as always. Dead letters of a micro-batch that is not recorded
as done stay, because the sink will repeat it; for the same reason the sink must not run meanwhile. Dead letters of an
earlier spool are written too, if this one has their schema.
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
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import file_options_of
from spark_sink.sinks.files.writer import FileWriter, by_series, destination_at
from spark_sink.sinks.shared.dead_letters import DeadLetters, Replay
from spark_sink.sinks.shared.known_schemas import KnownSchemas
from spark_sink.sinks.shared.replayed_spools import ReplayedSpools, held, replayed_spool
from spark_sink.sinks.shared.row_encoding import encode_rows

_ROW = "row"
"""The column that holds a row's index among the dead letters."""


@contextmanager
def replay_into(config: Config, store: DeadLetters) -> Iterator[Replay]:
    """Opens the replay; it holds the sink's lock meanwhile.

    Raises:
        SpoolError: there is no spool.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: from the replay, if the destination refuses.
    """
    assert isinstance(config.sink, FilesConfig)
    spool = replayed_spool(config, must_have_delivered=False)
    with held(spool, config) as spools:
        yield _FileReplay(config, config.sink, spool, spools, store)


class _FileReplay:
    def __init__(
        self, config: Config, sink: FilesConfig, spool: Spool, spools: ReplayedSpools, store: DeadLetters
    ) -> None:
        self._spools = spools
        destination = destination_at(absolute(sink.path), sink.endpoint or "")
        spool_id = spool.header().spool_id
        self._schemas = KnownSchemas(spool)
        self._writer = FileWriter(spool, spool_id, destination, file_options_of(config, sink), store)
        self._has_written: set[str] = set()

    def send(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]] | None:
        """Writes the events of a dead-letter file that can be encoded; returns the others."""
        if self._spools.will_repeat(name, rows):
            return None  # the sink will repeat its micro-batch
        return self._schemas.sent(rows, lambda known: self._write(name, known))

    def _write(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        rows = self._writer.marked(rows)
        rejected = self._rejected(rows)
        indexes = np.setdiff1d(np.arange(rows.num_rows), [index for index, _ in rejected])
        encodable = rows.take(pa.array(indexes))
        minutes = integers(pc.list_element(encodable.column("sort_keys"), 1).cast(pa.int64())) // MINUTE
        for minute in np.unique(minutes).tolist():
            of_minute = encodable.filter(pa.array(minutes == minute))
            list(self._writer.write_rows([of_minute], minute, f"{name}_{_digest(of_minute)}", name, 0))
        if len(indexes):
            self._has_written.add(rows.column("object")[0].as_py())
        return rejected

    def _rejected(self, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        rejected: list[tuple[int, str]] = []
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        for series, some in by_series(numbered):
            numbers: Sequence[int] = some.column(_ROW).to_pylist()
            found = encode_rows(self._writer.encoding, series, some.drop_columns([_ROW])).rejected
            rejected += [(numbers[index], why) for index, why in found]
        return rejected

    def tried(self, table: str, *, left: int) -> None:
        """A table whose last dead letter is written is no longer stopped."""
        if not left and table in self._has_written:
            self._spools.resume(table)


def _digest(rows: pa.RecordBatch) -> str:
    """A digest of the rows: equal for the same rows."""
    digest = blake2b(digest_size=4)
    for uuid in rows.column("uuid").to_pylist():
        digest.update(uuid.encode())
    return digest.hexdigest()
