"""The document that ``/api/status`` serves. Unknown values are absent; it never has a row's value or a whole token."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["UNSET", "UnsetType", "schema"]


class Build(msgspec.Struct):
    """This program, and where its documentation is published, if its package says so."""

    version: str
    python: str
    documentation: str | UnsetType = UNSET


class StreamStateNode(msgspec.Struct):
    """The state of the stream, since when, and why."""

    name: str
    since: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class Health(msgspec.Struct):
    """The health of the process (it makes progress) and of the destination (its data is fresh)."""

    healthy: bool
    ready: bool
    summary: str
    alarms: list[dict[str, Any]] = []


class Watermark(msgspec.Struct):
    """Timestamps up to which everything was read, and sealed, and how far they trail the clock, in seconds."""

    watermark: str | UnsetType = UNSET
    lag_seconds: float | UnsetType = UNSET
    sealed: str | UnsetType = UNSET
    sealed_lag_seconds: float | UnsetType = UNSET


class GraphPartition(msgspec.Struct):
    """A partition, by the name that the log gives it; ``state`` is reading, waiting or finished."""

    id: str
    start: str
    parents: list[str]
    state: str
    watermark: str
    end: str | UnsetType = UNSET


class Partitions(msgspec.Struct):
    """The partitions, and the churn since the process started; ``graph`` has the newest 300."""

    alive: int
    churn: dict[str, int]
    splits: int
    merges: int
    moves: int
    graph: list[GraphPartition]
    reading: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET


class HistoryPoint(msgspec.Struct):
    """Lag and sealed throughput at a time."""

    time: str
    mods_per_second: float
    bytes_per_second: float
    lag_seconds: float | UnsetType = UNSET


class TableThroughput(msgspec.Struct):
    """The data of a table that was sealed since the process started."""

    table: str
    records: int
    mods: int
    bytes: int
    mods_per_second: float | UnsetType = UNSET


class Epochs(msgspec.Struct):
    """The newest epoch of the spool, and what this process has sealed."""

    sealed: int
    mods: int
    newest: int | UnsetType = UNSET


class Buffer(msgspec.Struct):
    """Records that are held in memory."""

    bytes: int


class SpoolNode(msgspec.Struct):
    """The spool's size and limit."""

    path: str
    max_bytes: int
    bytes: int | UnsetType = UNSET


class ConsumerNode(msgspec.Struct):
    """A consumer of the spool and its lag; for a sink also its destination, deliveries, newest cut, and start."""

    name: str
    epoch: int
    epochs_behind: int
    lag_seconds: float | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    batches: int | UnsetType = UNSET
    events: int | UnsetType = UNSET
    delivered_at: str | UnsetType = UNSET
    complete_up_to: str | UnsetType = UNSET
    incomplete_tables: dict[str, str] | UnsetType = UNSET
    maintained_at: str | UnsetType = UNSET
    unmaintained_tables: dict[str, str] | UnsetType = UNSET
    incomplete_before: str | UnsetType = UNSET
    tables_incomplete_before: list[str] | UnsetType = UNSET


class SinkNode(msgspec.Struct):
    """The configured sink, and what the sinks of the spool report."""

    type: str
    restarts: int
    dead_letters: int | UnsetType = UNSET
    stopped_tables: dict[str, str] = {}


class Retention(msgspec.Struct):
    """The time for which Spanner keeps records, and the time until those after the sealed watermark are gone."""

    seconds: float
    is_default: bool
    runway_seconds: float | UnsetType = UNSET
    used: float | UnsetType = UNSET


class Queries(msgspec.Struct):
    """Partition queries sent, and their retries by the gRPC code of the error."""

    sent: int
    retries: dict[str, int]


class Status(msgspec.Struct):
    """The status of a reader."""

    version: int
    time: str
    build: Build
    source: dict[str, str]
    state: StreamStateNode
    health: Health
    watermark: Watermark
    partitions: Partitions
    history: list[HistoryPoint]
    tables: list[TableThroughput]
    mods: dict[str, int]
    epochs: Epochs
    buffer: Buffer
    spool: SpoolNode
    consumers: list[ConsumerNode]
    sink: SinkNode
    queries: Queries
    errors: list[dict[str, Any]]
    backfills: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    figures: dict[str, float]
    retention: Retention | UnsetType = UNSET
    window: dict[str, Any] | UnsetType = UNSET
    window_in_progress: dict[str, Any] | UnsetType = UNSET


def schema() -> dict[str, Any]:
    """The JSON Schema of :class:`Status`."""
    return msgspec.json.schema(Status)
