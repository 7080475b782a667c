"""Recognizes and parses change stream queries, and rejects them as the official emulator does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from connector.core.timestamps import MINUTE, parse
from emulator.scenario.history import Partition
from emulator.scenario.scenario import Scenario
from emulator.scenario.transactions import rfc3339
from emulator.scripted.read_functions import ReadFunction, read_functions

MILLISECOND = 1_000_000
WINDOW = 30 * MINUTE
"""The longest time from a query's start, and from now, to its end in the MUTABLE_KEY_RANGE mode, in nanoseconds."""

AHEAD = 10 * MINUTE
"""The longest time by which a query may start in the future, in nanoseconds; it waits until then."""

_NAMES = ("start_timestamp", "end_timestamp", "partition_token", "heartbeat_milliseconds", "read_options")
_GOOGLE_FUNCTION = re.compile(r"\bFROM\s+`?(READ_\w+)`?\s*\(", re.IGNORECASE)
_POSTGRES_FUNCTION = re.compile(
    r"\bFROM\s+\"?spanner\"?\s*\.\s*\"?(read_(?:json|proto_bytes)_\w+)\"?\s*\(", re.IGNORECASE
)
_ARGUMENT = re.compile(
    r"""\s*(?:(?P<name>\w+)\s*=>\s*)?
    (?:@(?P<at>\w+)|\$(?P<dollar>\d+)|(?P<null>NULL)|(?P<number>\d+)
       |(?P<array>\[[^\]]*\])|(?:TIMESTAMP\s*)?(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"))
    (?:::[\w ]+)?\s*(?P<more>,|\))""",
    re.IGNORECASE | re.VERBOSE,
)


class ScriptedError(Exception):
    """An error that a call ends with: a gRPC status code and its message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A valid query of a function: of a partition, or the initial query if `token` is None.

    Both bounds are inclusive; times are nanoseconds since 1970, and `heartbeat` is nanoseconds.
    """

    function: ReadFunction
    token: str | None
    start: int
    end: int | None
    heartbeat: int
    received_at: int
    """The server's time at which it was received."""

    @property
    def proves_its_end(self) -> bool:
        """True if its end had passed when it was received, so that an OK proves that everything up to it was sent."""
        return self.end is not None and self.end <= self.received_at


def reads_change_stream(sql: str) -> bool:
    """Returns whether a statement calls a read function of any change stream."""
    return bool(_GOOGLE_FUNCTION.search(sql) or _POSTGRES_FUNCTION.search(sql))


def stream_query(scenario: Scenario, sql: str, parameters: Mapping[str, str | None], now: int) -> StreamQuery:
    """Parses a change stream query.

    Raises:
        ScriptedError: Spanner would reject it.
    """
    function, opening = _called(scenario, sql, now)
    arguments = _arguments(sql, parameters, opening)
    if arguments.get("read_options") is not None:
        raise ScriptedError(grpc.StatusCode.UNIMPLEMENTED, "read_options must be null.")
    start = _timestamp(arguments.get("start_timestamp"), "start_timestamp")
    end = _timestamp(arguments.get("end_timestamp"), "end_timestamp")
    if start is None:
        raise invalid("start_timestamp must not be null.")
    heartbeat = _heartbeat(arguments.get("heartbeat_milliseconds"), scenario.shortest_heartbeat // MILLISECOND)
    query = StreamQuery(function, arguments.get("partition_token"), start, end, heartbeat, now)
    _check_times(scenario, query)
    _check_partition(scenario, query)
    return query


def invalid(message: str) -> ScriptedError:
    """Returns an error for an invalid argument."""
    return ScriptedError(grpc.StatusCode.INVALID_ARGUMENT, message)


def too_old(start: int, earliest: int) -> ScriptedError:
    """Returns the error for a start that is no longer retained."""
    return ScriptedError(
        grpc.StatusCode.OUT_OF_RANGE,
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest read"
        f" timestamp: {_shown(earliest)}. Received start_timestamp: {_shown(start)}.",
    )


def expired_partition() -> ScriptedError:
    """Returns the error for a partition that is no longer retained."""
    return ScriptedError(
        grpc.StatusCode.OUT_OF_RANGE,
        "This partition is no longer valid. All Change Stream records associated with this partition have expired and"
        " have been deleted, as specified by the Change Stream retention period.",
    )


def _called(scenario: Scenario, sql: str, now: int) -> tuple[ReadFunction, int]:
    """Returns the function, and where its arguments start; it must read the scenario's change stream."""
    google, postgres = _GOOGLE_FUNCTION.search(sql), _POSTGRES_FUNCTION.search(sql)
    functions = {function.name: function for function in read_functions(scenario, now)}
    if scenario.dialect == "googlesql":
        if google is None:
            raise invalid(f"Syntax error: Unexpected string literal in {sql!r}")
        # GoogleSQL ignores the case.
        called = next((function for name, function in functions.items() if name.lower() == google[1].lower()), None)
        if called is None:
            raise invalid(f"Table-valued function not found: {google[1]} [at 1:{google.start(1) + 1}]\n{sql}")
        return called, google.end()
    if postgres is None:
        raise invalid(f"[ERROR] relation or function of another dialect in {sql!r}")
    if postgres[1] in functions:
        return functions[postgres[1]], postgres.end()
    raise ScriptedError(
        grpc.StatusCode.NOT_FOUND,
        f"[ERROR] function spanner.{postgres[1]}(timestamp with time zone, timestamp with time zone, text, bigint,"
        " unknown) does not exist\n"
        "Hint: No function matches the given name and argument types. You might need to add explicit type casts.",
    )


def _arguments(sql: str, parameters: Mapping[str, str | None], opening: int) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    at = opening
    for position in _NAMES:
        match = _ARGUMENT.match(sql, at)
        if match is None:
            raise invalid(f"Syntax error: an argument of the read function is neither a literal nor a parameter: {sql}")
        name = (match["name"] or position).lower()
        if name not in _NAMES or name in found:
            raise invalid(f"Named argument {name} not found in signature for call to function, or given twice: {sql}")
        found[name] = _given(match, parameters)
        at = match.end()
        if match["more"] == ")":
            return found
    raise invalid("No matching signature: the read function takes five arguments at most")


def _given(match: re.Match[str], parameters: Mapping[str, str | None]) -> str | None:
    name = match["at"] or (f"p{match['dollar']}" if match["dollar"] else None)
    if name is None:
        return next((match[kind] for kind in ("number", "array", "single", "double") if match[kind] is not None), None)
    if name not in parameters:
        raise invalid(f"No parameter found for binding: {name}")
    return parameters[name]


def _timestamp(value: str | None, name: str) -> int | None:
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise ScriptedError(
            grpc.StatusCode.FAILED_PRECONDITION, f"Could not parse {value} as a TIMESTAMP. It is the {name}."
        ) from error


def _heartbeat(value: str | None, shortest: int) -> int:
    if value is None:
        raise invalid("heartbeat_milliseconds must not be null.")
    if not value.removeprefix("-").isdecimal():
        raise invalid(f"Could not parse {value} as an INT64 for heartbeat_milliseconds")
    if not shortest <= int(value) <= 300_000:
        raise ScriptedError(
            grpc.StatusCode.OUT_OF_RANGE,
            f"heartbeat_milliseconds must be within min {shortest} and max 300000. Received heartbeat_milliseconds:"
            f" {int(value)}.",
        )
    return int(value) * MILLISECOND


def _check_times(scenario: Scenario, query: StreamQuery) -> None:
    start, end, now = query.start, query.end, query.received_at
    if end is not None and start > end:
        raise invalid(
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received start_timestamp:"
            f" {_shown(start)}, end_timestamp: {_shown(end)}."
        )
    earliest = max(scenario.history.origin, now - scenario.retention)
    if start < earliest:
        raise too_old(start, earliest)
    _check_placement(scenario, query)
    if start > now + AHEAD:
        raise ScriptedError(
            grpc.StatusCode.OUT_OF_RANGE,
            "Specified start_timestamp is too far in the future. Please specify a start_timestamp within the earliest"
            f" read timestamp: {_shown(earliest)}, and the current maximum start timestamp: {_shown(now + AHEAD)}."
            f" Received start_timestamp: {_shown(start)}.",
        )
    if scenario.mode == "IMMUTABLE_KEY_RANGE":
        return
    if end is None:
        raise invalid("end_timestamp must not be null for a change stream of partition mode MUTABLE_KEY_RANGE.")
    if end > max(now, start) + WINDOW:
        raise invalid(
            "end_timestamp must be at most 30 minutes past the later of the current time and start_timestamp for a"
            f" change stream of partition mode MUTABLE_KEY_RANGE. Received end_timestamp: {_shown(end)}."
        )


def _check_placement(scenario: Scenario, query: StreamQuery) -> None:
    """Checks a start against the creation of the function's placement."""
    placement, places = query.function.placement, scenario.placements
    if placement is None or places is None or query.start >= placement.created or places.early == "accepted":
        return
    if places.early == "earliest named":
        raise too_old(query.start, placement.created)
    raise invalid(
        "Specified start_timestamp is too early for the placement TVF. Received start_timestamp:"
        f" {_shown(query.start)}."
    )


def _check_partition(scenario: Scenario, query: StreamQuery) -> None:
    if query.token is None:
        return
    partition = scenario.history.partitions.get(query.token)
    if partition is None or partition.start > query.received_at:
        raise invalid(
            "Specified partition_token is invalid, as it does not belong to the Change Stream associated with the TVF."
            f" Received partition_token: {query.token}."
        )
    if partition.end is not None and partition.end < query.received_at - scenario.retention:
        raise expired_partition()
    if not query.function.reads(partition.placement):
        raise invalid(f"Partition token {query.token} does not belong to the placement TVF")
    last = last_start(scenario, partition)
    if query.start < partition.start or (last is not None and last < query.start):
        until = "infinite-future" if last is None or last >= query.received_at else _shown(last)
        raise ScriptedError(
            grpc.StatusCode.OUT_OF_RANGE,
            "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within"
            f" {_shown(partition.start)} and {until}. Received start_timestamp: {_shown(query.start)}.",
        )


def last_start(scenario: Scenario, partition: Partition) -> int | None:
    """Returns the last start at which a partition may be queried, where it announces its end; None if it has no end."""
    if partition.end is None:
        return None
    return partition.end if scenario.mode == "IMMUTABLE_KEY_RANGE" else partition.end - 1


def _shown(at: int) -> str:
    """Formats a timestamp as these messages do."""
    return rfc3339(at).replace("Z", "+00:00")
