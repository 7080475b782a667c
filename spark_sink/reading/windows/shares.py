"""A batch source whose tasks read the shares of a window; internal to the reader on executors.

A task that fails with an error of the connector yields it as a row of every slice and ends. So Spark does not repeat
what would fail again, and the driver needs no traceback. What a task has yielded before is not used then: Spark may run
a task again after some slices are written, for instance where an executor was lost, and whoever takes any of its rows
takes its error, too.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector import errors
from connector.core.windows import Share, ShareReport, Window
from connector.errors import ConfigurationError, DataLostError, SpannerCdcError, StreamError
from connector.process import collect_rarely
from spark_sink.reading.windows.rows import ERROR, REPORT, ROWS, RowMaker, text_row

FORMAT = "spanner-window-shares"

SETUP = "secret_setup"
"""The option with the setup: it may hold salts, and Spark shows no value of an option that is called secret."""


class TaskError(msgspec.Struct, frozen=True):
    """An error of the connector, as it travels to the driver."""

    kind: str
    message: str
    hint: str
    earliest: int | None = None

    @classmethod
    def of(cls, error: SpannerCdcError) -> "TaskError":
        """Describes an error."""
        earliest = error.earliest if isinstance(error, DataLostError) else None
        return cls(type(error).__name__, str(error.args[0]), error.hint, earliest)

    def rebuilt(self) -> SpannerCdcError:
        """The error, of the same class, so that its exit code is the same."""
        kind: type[SpannerCdcError] = getattr(errors, self.kind, StreamError)
        if issubclass(kind, ConfigurationError):
            return kind([self.message])
        if issubclass(kind, DataLostError):
            return kind(self.message, hint=self.hint, earliest=self.earliest)
        return kind(self.message, hint=self.hint)


@dataclass(frozen=True)
class SharePartition(InputPartition):
    """A share as Spark sends it to an executor; all but the number of slices is JSON."""

    setup: str = field(repr=False)
    window: str
    share: str
    slices: int


@contextmanager
def _collected_once() -> Iterator[None]:
    """Collects garbage at the end instead of many times: thousands of partitions are hundreds of thousands of objects.

    The next task may run in the same process, and finds no garbage of this one.
    """
    _collect_rarely()
    try:
        yield
    finally:
        gc.collect()


_collect_rarely = cache(collect_rarely)
"""Once in a process: what is exempted each time would never be freed."""


class WindowShares(DataSource):
    """Reads the shares of a window.

    Options: :data:`SETUP`, a :class:`spark_sink.reading.windows.task.WindowSetup` as JSON; ``window``; ``shares``, a
    JSON list of strings; ``slices``, how many there are.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the window's rows."""
        return from_arrow_schema(ROWS)

    def reader(self, schema: StructType) -> "ShareDataReader":
        """Reads the window."""
        return ShareDataReader(dict(self.options))


class ShareDataReader(DataSourceReader):
    """A task for each share."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        setup, window = self._options[SETUP], self._options["window"]
        shares = msgspec.json.decode(self._options["shares"], type=list[str])
        return [SharePartition(setup, window, share, int(self._options["slices"])) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a share; its report, or its error, comes last."""
        if not isinstance(partition, SharePartition):
            return  # Spark's stand-in for an empty plan
        # The driver imports this module twice a window, in new processes that plan it: they need no gRPC.
        from spark_sink.reading.windows.task import WindowSetup, read_share

        setup, share = WindowSetup.from_json(partition.setup), Share.from_json(partition.share)
        window = Window.from_json(partition.window)
        maker = RowMaker(share.number, window.low, window.high, partition.slices)
        try:
            with _collected_once(), closing(read_share(setup, window, share)) as items:
                for item in items:
                    if isinstance(item, ShareReport):
                        yield text_row(REPORT, share.number, item.to_json())
                    else:
                        yield from maker.rows(item)
        except SpannerCdcError as error:
            text = msgspec.json.encode(TaskError.of(error)).decode()
            for at in range(partition.slices):
                yield text_row(ERROR, share.number, text, at=at)
