"""The options of the source; all errors in them are reported at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from connector.config.address import DatabaseAddress
from connector.config.values import parse_timestamp
from connector.errors import ConfigurationError
from connector.process import EMULATOR_HOST
from spark_sink.option_names import unknown

KNOWN = (
    "projectId",
    "instanceId",
    "databaseId",
    "table",
    "readTimestamp",
    "columns",
    "enableDataboost",
    "rpcPriority",
    "emulatorHost",
)
_REQUIRED = KNOWN[:4]
_PRIORITIES = ("low", "medium", "high")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """The options that a user sets.

    Attributes:
        address: the database.
        read_timestamp: ``now``, an offset such as ``-15m``, or RFC 3339.
        columns: the names of columns; none for all.
    """

    address: DatabaseAddress
    table: str
    read_timestamp: str = "now"
    columns: tuple[str, ...] = ()
    data_boost: bool = False
    rpc_priority: str = "medium"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SnapshotOptions":
        """Parses the options that Spark passes; their names are case-insensitive.

        Raises:
            ConfigurationError: with every error in the options.
        """
        given = {name.lower(): value.strip() for name, value in options.items()}
        faults = unknown(given, KNOWN)
        missing = [name for name in _REQUIRED if not given.get(name.lower())]
        if missing:
            faults.append(f"option {', '.join(missing)} is missing")
        at = given.get("readtimestamp", "now")
        try:
            parse_timestamp(at)
        except ValueError as error:
            faults.append(f"option readTimestamp: {error}")
        columns = tuple(name.strip() for name in given.get("columns", "").split(",") if name.strip())
        if "columns" in given and not columns:
            faults.append("option columns is empty: name columns, separated by commas, or omit it")
        repeated = sorted({name for name in columns if columns.count(name) > 1})
        if repeated:
            faults.append(f"option columns names {', '.join(repeated)} more than once")
        boost = given.get("enabledataboost", "false").lower()
        if boost not in _BOOLEANS:
            faults.append(f"option enableDataboost is {boost!r}, neither true nor false")
        priority = given.get("rpcpriority", "medium").lower()
        if priority not in _PRIORITIES:
            faults.append(f"option rpcPriority is {priority!r}, none of {', '.join(_PRIORITIES)}")
        if faults:
            raise ConfigurationError(faults)
        project, instance, database, table = (given[name.lower()] for name in _REQUIRED)
        emulator = given.get("emulatorhost") or os.environ.get(EMULATOR_HOST)
        address = DatabaseAddress(project, instance, database, emulator_host=emulator or None)
        return cls(address, table, at, columns, _BOOLEANS[boost], priority)
