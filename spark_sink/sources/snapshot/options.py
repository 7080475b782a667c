"""The options of the source; all errors in them are reported at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from connector.config.address import DatabaseAddress
from connector.config.omni import OmniServer
from connector.config.sections import SourceConfig
from connector.config.values import parse_timestamp
from connector.errors import ConfigurationError
from spark_sink.sources.option_names import listed, lowered, refused, unknown
from spark_sink.sources.server_options import SERVER_OPTIONS, is_omni, server_of

KNOWN = (
    "projectId",
    "instanceId",
    "databaseId",
    "table",
    "readTimestamp",
    "columns",
    "enableDataboost",
    "rpcPriority",
    *SERVER_OPTIONS,
)
_REQUIRED = KNOWN[:4]
_PRIORITIES = ("low", "medium", "high")
_OPTIONS = {"project": "project_id", "instance": "instance_id", "database": "database_id"}
"""Those of the section ``source`` that have another name here."""
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
        given = lowered(options)
        faults = unknown(given, KNOWN)
        required = _REQUIRED[2:] if is_omni(given) else _REQUIRED
        missing = [name for name in required if not given.get(name.lower())]
        if missing:
            faults.append(f"option {', '.join(missing)} is missing")
        at = given.get("readtimestamp", "now")
        faults += refused("readTimestamp", at, parse_timestamp)
        columns = listed("columns", given, faults, what="columns, separated by commas")
        repeated = sorted({name for name in columns if columns.count(name) > 1})
        if repeated:
            faults.append(f"option columns names {', '.join(repeated)} more than once")
        boost = given.get("enabledataboost", "false").lower()
        if boost not in _BOOLEANS:
            faults.append(f"option enableDataboost is {boost!r}, neither true nor false")
        elif _BOOLEANS[boost] and is_omni(given):
            faults.append("option enableDataboost is true, and Spanner Omni has no Data Boost: omit it")
        priority = given.get("rpcpriority", "medium").lower()
        if priority not in _PRIORITIES:
            faults.append(f"option rpcPriority is {priority!r}, none of {', '.join(_PRIORITIES)}")
        address = None if missing else _address(given, faults)
        if faults or address is None:
            raise ConfigurationError(faults)
        return cls(address, given["table"], at, columns, _BOOLEANS[boost], priority)


def _address(given: Mapping[str, str], faults: list[str]) -> DatabaseAddress | None:
    """The database, checked as the section ``source`` of a configuration is."""
    names = {name: given.get(f"{name}id") or None for name in ("project", "instance", "database")}
    try:
        found = SourceConfig.model_validate({**names, **server_of(given), "change_stream": "unnamed"}).address
    except ValidationError as error:
        for detail in error.errors():
            name = OmniServer(section="").option(_OPTIONS.get(path := ".".join(map(str, detail["loc"])), path))
            faults.append(f"{name}: {detail['msg'].removeprefix('Value error, ')}")
        return None
    return found if found.omni is None else replace(found, omni=replace(found.omni, section=""))
