"""The tables at the destination of a configuration's sink, beside the source's change streams."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connector.check.findings import watched_stream
from connector.cli.discovering.objects import Description, discovered
from connector.cli.discovering.text import aligned, streams_text
from connector.config.loading import Config
from connector.config.sinks import DestinationObject, sink_type
from connector.reader.change_stream import opened


@dataclass(frozen=True, slots=True)
class DiscoveredEnds:
    """Both ends of a configuration.

    Attributes:
        streams: the change streams of the source's database.
        sink: the type of the sink.
        objects: the tables and views at its destination; None if a destination of this kind has none.
    """

    streams: Sequence[Description]
    sink: str
    objects: Sequence[DestinationObject] | None

    def to_json(self) -> Description:
        """The report for programs."""
        report: Description = {"change_streams": list(self.streams), "sink": self.sink}
        return report if self.objects is None else {**report, "objects": [_description(one) for one in self.objects]}

    def to_text(self) -> str:
        """The report for people."""
        return "\n".join([streams_text(self.streams), *self._objects()])

    def _objects(self) -> Sequence[str]:
        if self.objects is None:
            return [f"sink {self.sink}: its destination has no tables to list"]
        if not self.objects:
            return [f"sink {self.sink}: no table is at its destination yet"]
        return [f"sink {self.sink}", *(line for one in self.objects for line in _lines(one))]


async def discovered_with_destination(config: Config) -> DiscoveredEnds:
    """Describes the change streams of the source's database, and what is at the sink's destination.

    Raises:
        ConfigurationError: the database has no such change stream, or the sink cannot be looked at.
        SpannerCdcError: Spanner or the destination cannot be reached, or refuses.
    """
    streams = await discovered(config.source)
    async with opened(config.source) as stream:
        watched = watched_stream(stream, config)
    kind = sink_type(config.sink.type)
    found = await asyncio.to_thread(kind.objects, config.sink, config.source, config.spark, watched)
    return DiscoveredEnds(streams, config.sink.type, found)


def _description(one: DestinationObject) -> Description:
    columns = [{"name": name, "type": kind} for name, kind in one.columns.items()]
    return {"name": one.name, "key": list(one.key), "columns": columns}


def _lines(one: DestinationObject) -> Iterable[str]:
    yield f"  {one.name}"
    rows = [[f"{name}{'*' if name in one.key else ''}", kind] for name, kind in one.columns.items()]
    yield from (f"    {line}" for line in aligned([["column", "type"], *rows]))
