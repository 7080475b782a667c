"""The options of the source; all errors in them are reported at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from connector.config.sinks import sink_names
from connector.config.values import OLDEST, parse_sink_start
from connector.errors import ConfigurationError, SpoolError
from connector.spool.consumers import DEFAULT, checked_name
from connector.spool.storage.locations import absolute, checked
from spark_sink.sources.option_names import listed, lowered, refused, unknown
from spark_sink.sources.server_options import SERVER_OPTIONS, is_omni, server_of

_REQUIRED_IN_JOB = ("projectId", "instanceId", "databaseId", "changeStream")
_RANGE = ("startTimestamp", "endTimestamp", "heartbeat")
IN_JOB = (*_REQUIRED_IN_JOB, *_RANGE, *SERVER_OPTIONS, "statusPort")
KNOWN = ("spool", "maxRowsPerTrigger", "tables", "consumer", "start", "envelope", *IN_JOB, "reader")
_PORTS = range(65536)

Envelope = Literal["datastream", "opencdc"]
DATASTREAM: Envelope = "datastream"
OPENCDC: Envelope = "opencdc"


@dataclass(frozen=True, slots=True)
class InJobOptions:
    """The change stream that a reader inside the job reads; an empty field has the default of the daemon."""

    project: str
    instance: str
    database: str
    change_stream: str
    start: str = ""
    end: str = ""
    heartbeat: str = ""
    server: Mapping[str, object] = field(default_factory=dict)
    """The options of the database's server, by the names of the section ``source``."""
    status_port: int = 0
    """Of the status server, on loopback; 0 for any that is free, which the log names."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options that a user sets; ``spool`` is an absolute path, or ``gs://bucket/prefix``."""

    spool: str
    max_rows: int | None = None
    tables: tuple[str, ...] = ()
    consumer: str = DEFAULT
    start: str = OLDEST
    envelope: Envelope = DATASTREAM
    in_job: InJobOptions | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Parses the options that Spark passes; their names are case-insensitive.

        Raises:
            ConfigurationError: with every error in the options.
        """
        given = lowered(options)
        faults = unknown(given, KNOWN)
        if not given.get("spool"):
            faults.append("option spool is missing: the path of the spool that the daemon writes")
        else:
            faults += refused("spool", given["spool"], checked)
        most = given.get("maxrowspertrigger")
        if most is not None and not (most.isascii() and most.isdecimal() and int(most) > 0):
            faults.append(f"option maxRowsPerTrigger is {most!r}, not a number above 0")
        tables = listed("tables", given, faults, what="one table or more")
        consumer = given.get("consumer", DEFAULT)
        try:
            if checked_name(consumer).partition(".")[0] in sink_names():
                faults.append(f"option consumer is {consumer!r}, the name of a registered sink: choose another")
        except SpoolError as error:
            faults.append(f"option {error}")
        start = given.get("start", OLDEST)
        faults += refused("start", start, parse_sink_start)
        envelope = given.get("envelope", DATASTREAM).lower()
        if envelope not in (DATASTREAM, OPENCDC):
            faults.append(f"option envelope is {envelope!r}, neither {DATASTREAM} nor {OPENCDC}")
        in_job = _in_job(given, faults)
        if in_job is not None and "start" in given:
            faults.append("option start is for a spool that a daemon writes: with projectId, set startTimestamp")
        if faults:
            raise ConfigurationError(faults)
        return cls(
            absolute(given["spool"]),
            int(most) if most else None,
            tables,
            consumer,
            start,
            OPENCDC if envelope == OPENCDC else DATASTREAM,
            in_job,
        )

    def admits(self, table: str) -> bool:
        """True if the option ``tables`` includes a table."""
        return not self.tables or any(fnmatchcase(table, pattern) for pattern in self.tables)


def _in_job(given: Mapping[str, str], faults: list[str]) -> InJobOptions | None:
    if (fault := _fault_of_reader(given)) is not None:
        faults.append(fault)
    given_names = [name for name in IN_JOB if name.lower() in given]
    if not given_names:
        return None
    required = _REQUIRED_IN_JOB[2:] if is_omni(given) else _REQUIRED_IN_JOB
    missing = [name for name in required if not given.get(name.lower())]
    if missing:
        faults.append(f"option {', '.join(missing)} is missing: {given_names[0]} starts a reader inside the job")
        return None
    project, instance, database, stream, start, end, heartbeat = (
        given.get(name.lower(), "") for name in (*_REQUIRED_IN_JOB, *_RANGE)
    )
    port = given.get("statusport", "")
    if port and not (port.isascii() and port.isdecimal() and int(port) in _PORTS):
        faults.append(f"option statusPort is {port!r}, not a port from 0 to 65535")
        return None
    return InJobOptions(project, instance, database, stream, start, end, heartbeat, server_of(given), int(port or 0))


def _fault_of_reader(given: Mapping[str, str]) -> str | None:
    """The error of the option ``reader``.

    Windows are jobs of a Spark session. A source is made by Spark in a Python process that has none, and the query's
    own session cannot be reached from there.
    """
    reader = given.get("reader", "process").lower()
    if reader == "process":
        return None
    if reader == "executors":
        return (
            "option reader is 'executors', but a source has no Spark session to read with: start"
            " `spanner-cdc read CONFIG` with source.reader: executors, and name only its spool here"
        )
    return f"option reader is {given['reader']!r}, not process"
