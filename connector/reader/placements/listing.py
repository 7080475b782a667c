"""Lists the read functions of a change stream, as of a timestamp of Spanner's clock."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from connector.core.dialects import MUTABLE, Dialect
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from connector.reader.placements.matching import (
    OPTION,
    MatchedFunctions,
    check_placements,
    has_functions,
    match_functions,
)
from connector.spanner.discovery import (
    ChangeStream,
    MetadataAsOf,
    VersionedMetadata,
    change_stream_names,
    change_stream_options,
    current_timestamp,
)

_LISTED = (
    "SELECT 'function' AS kind, routine_name AS name FROM information_schema.routines"
    " WHERE UPPER(routine_type) LIKE '%FUNCTION'{}"
    " UNION ALL SELECT 'placement' AS kind, placement_name AS name FROM information_schema.placements"
)

UNCERTAINTY = SECOND // 100
"""The most by which the clock of Spanner's server that answers first may be ahead of the one that answers next."""

_ATTEMPTS, _PAUSE = 5, 1.0
"""Lists that are read before reading starts, until one is settled, and seconds between them."""


@dataclass(frozen=True, slots=True)
class FunctionList:
    """The read functions of a change stream.

    Attributes:
        at: every function that existed at this timestamp is listed; Unix nanoseconds.
        functions: the name of each function that is to be read, by its placement.
        known: the names of all placements that have a function.
        unsettled: why the list may be incomplete, as a clause; empty if it is complete.
    """

    at: int
    functions: Mapping[str, str]
    known: tuple[str, ...]
    unsettled: str = ""


class FunctionLister:
    """Lists the read functions of a change stream.

    Args:
        client: reads metadata with strong reads.
        dialect: the database's.
        stream: the change stream.
        placements: those that are to be read; None for all.
    """

    def __init__(
        self, client: VersionedMetadata, dialect: Dialect, stream: ChangeStream, placements: Sequence[str] | None
    ) -> None:
        self._client = client
        self._dialect = dialect
        self._stream = stream.name
        self.placements = placements
        self._prefix = f"{dialect.function(stream.name, MUTABLE)}_"
        schema = dialect.function_schema
        self._sql = _LISTED.format("" if schema is None else f" AND routine_schema = '{schema}'")
        self._rows: list[list[object]] | None = None
        self._matched = MatchedFunctions({})
        self._past: dict[tuple[tuple[object, ...], ...], MatchedFunctions] = {}
        self._seen: dict[str, str] = {}
        """The placement of each function that was listed so far, which may be dropped before its function is."""

    async def read(self) -> FunctionList:
        """Reads the list now.

        Raises:
            ConfigurationError: the name of a function could be of two streams or placements.
            SpannerCdcError: Spanner does not answer, or refuses.
        """
        at = await current_timestamp(self._client) - UNCERTAINTY
        rows = await self._client.rows(self._sql)
        if rows != self._rows:
            self._matched = await self._match(rows)
            self._rows = rows
        functions = self._matched.functions
        if self.placements is not None:
            functions = {name: function for name, function in functions.items() if name in self.placements}
        unsettled = self._matched.unsettled(self._stream, self.placements)
        return FunctionList(at, functions, tuple(self._matched.functions), unsettled)

    async def first(self) -> FunctionList:
        """The list before a new spool, or a stream without one, is read.

        Raises:
            ConfigurationError: there are no functions, the list is not complete, or a configured placement has none.
            SpannerCdcError: Spanner does not answer, or refuses.
        """
        found = await self.settled()
        if not (found.known or self._matched.unknown):
            why = f"{self._stream} has option {OPTION}, and INFORMATION_SCHEMA lists no read function of it"
            raise ConfigurationError([f"source.change_stream: {why}; a database role needs EXECUTE on them"])
        if found.unsettled:
            raise ConfigurationError([f"source.change_stream: {found.unsettled}"])
        check_placements(self._matched.functions, self.placements)
        return found

    async def settled(self, started: Iterable[str] = ()) -> FunctionList:
        """The list once it is complete, or as it is after some attempts.

        Args:
            started: the names of functions that are read already; the placement of one may be dropped before it is.

        Raises:
            SpannerCdcError: Spanner does not answer, or refuses.
        """
        for function in started:
            if function not in self._seen:
                self._seen[function] = function[len(self._prefix) :]
                self._rows = None
        found = await self.read()
        for _ in range(_ATTEMPTS - 1):
            if not found.unsettled:
                break
            await asyncio.sleep(_PAUSE)  # a placement that is being created may have no function yet
            found = await self.read()
        return found

    async def as_of(self, timestamp: int) -> dict[str, str]:
        """The placement of each function that was to be read as of a timestamp in the past, by the function.

        Raises:
            ConfigurationError: the name of a function could be of two streams or placements.
            SpannerCdcError: Spanner does not answer, or refuses because it keeps no such version.
        """
        rows = await self._client.rows(self._sql, at=timestamp)
        if rows == self._rows:
            matched = self._matched
        else:
            key = tuple(map(tuple, rows))
            matched = self._past[key] = self._past.get(key) or await self._matched_in(rows, timestamp)
        return {
            function: placement
            for placement, function in matched.functions.items()
            if self.placements is None or placement in self.placements
        }

    async def _match(self, rows: list[list[object]]) -> MatchedFunctions:
        matched = await self._matched_in(rows)
        dropped = {self._seen[name]: name for name in matched.unknown if name in self._seen}
        self._seen |= {function: placement for placement, function in matched.functions.items()}
        return MatchedFunctions(
            {**dropped, **matched.functions},
            tuple(name for name in matched.unknown if name not in self._seen),
            tuple(name for name in matched.missing if name not in self._seen.values()),
        )

    async def _matched_in(self, rows: list[list[object]], at: int | None = None) -> MatchedFunctions:
        """The functions in a list, compared with the streams of its time."""
        client = MetadataAsOf(self._client, at)
        streams = dict.fromkeys(await change_stream_names(client), False)
        for name, options in (await change_stream_options(client)).items():
            if OPTION in options:
                streams[name] = has_functions(options)
        return match_functions(
            self._stream,
            self._dialect,
            streams=streams,
            placements=[str(name) for kind, name in rows if kind == "placement"],
            functions=sorted(str(name) for kind, name in rows if kind == "function"),
        )


def lister_of(
    client: VersionedMetadata, dialect: Dialect, stream: ChangeStream, placements: Sequence[str] | None
) -> FunctionLister | None:
    """The lister of a change stream's read functions; None for a stream that has one function alone.

    Raises:
        ConfigurationError: placements are configured and the stream has no functions of its own for them, or it is of
            a partition mode that has none.
    """
    if not has_functions(stream.options):
        if placements is None:
            return None
        raise ConfigurationError(
            [f"source.placements: change stream {stream.name} has no option {OPTION}: it is read as a whole"]
        )
    if stream.partition_mode != MUTABLE:
        mode = f"{stream.name} has option {OPTION} with partition mode {stream.partition_mode}"
        raise ConfigurationError([f"source.change_stream: {mode}; this version reads it with {MUTABLE} alone"])
    return FunctionLister(client, dialect, stream, placements)
