"""The settings of a source in Conduit's pipelines, by the names that ``source`` has in our own configuration.

Conduit keeps the position of the record that was processed last, and nothing before there is one. So ``start`` is a
timestamp: from ``now``, a pipeline that is started again before its first record would skip what was committed between.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version

from google.protobuf.message import Message

from connector.conduit.messages import Specified
from connector.conduit.reasons import CREATE_AGAIN, in_settings
from connector.config.loading import Config, validated
from connector.config.values import is_relative, parse_timestamp
from connector.core.position import DamagedPositionError, Position
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import ConfigurationError

NAME = "spanner-cdc"
"""The plugin's name in a pipeline: ``standalone:spanner-cdc``."""

_TYPE_STRING, _TYPE_INT, _TYPE_BOOL, _TYPE_DURATION = 1, 2, 4, 6
_REQUIRED = 1

_ENCRYPTED = "tls.enabled"
_KEYS, _PAYLOADS = "sdk.schema.extract.key.enabled", "sdk.schema.extract.payload.enabled"
"""The names that these settings have in connectors which use Conduit's SDK."""

_GO_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000}  # both of Go's micro signs
_GO_UNITS |= {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_GO_PART = rf"(\d{{1,15}}\.?\d{{0,9}}|\.\d{{1,9}})({'|'.join(_GO_UNITS)})"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as Conduit shows it.

    Attributes:
        text: what it is.
        default: its value where it is omitted.
        required: whether it must be given.
        kind: its type, by Conduit's number.
        is_list: whether its value is a list, with commas between.
    """

    text: str
    default: str = ""
    required: bool = False
    kind: int = _TYPE_STRING
    is_list: bool = False


SETTINGS: Mapping[str, Setting] = {
    "project": Setting("The project of Google Cloud; needed unless the edition is omni."),
    "instance": Setting("The Spanner instance; needed unless the edition is omni."),
    "database": Setting("The database.", required=True),
    "change_stream": Setting("The change stream.", required=True),
    "start": Setting(
        "Where reading begins while there is no position: RFC 3339, within the change stream's retention period.",
        required=True,
    ),
    "tables.include": Setting("Patterns of the tables whose records are kept; by default all.", is_list=True),
    "tables.exclude": Setting("Patterns of tables whose records are dropped.", is_list=True),
    "columns.exclude": Setting(
        "Patterns of the columns that are excluded, as Table.Column or *.Column; none may be of a key.", is_list=True
    ),
    "skip_transaction_tags": Setting(
        "Prefixes of transaction tags whose transactions are dropped, against replication loops.", is_list=True
    ),
    "heartbeat": Setting(
        "How far the watermark may lag on idle partitions, 100ms to 300s.", default="1s", kind=_TYPE_DURATION
    ),
    "workers": Setting("Processes that read.", default="1", kind=_TYPE_INT),
    "rpc_priority": Setting("The priority of the queries in Spanner: low, medium or high.", default="high"),
    "database_role": Setting("A role of fine-grained access control to read with."),
    "edition": Setting("The service or an emulator: cloud; a server of Spanner Omni: omni.", default="cloud"),
    "endpoint": Setting("A regional or private endpoint of Spanner; HOST:PORT of Spanner Omni."),
    "tls.enabled": Setting("Encrypts the connection to Spanner Omni: true or false; each tls setting does, too."),
    "tls.ca": Setting("The file with the CA of a server of Spanner Omni."),
    "tls.certificate": Setting("The file with the client's certificate for a server of Spanner Omni."),
    "tls.key": Setting("The file with the private key of that certificate."),
    "token_file": Setting("The file with the token of a user of Spanner Omni."),
    "emulator_host": Setting("An emulator's address, HOST:PORT; else that of SPANNER_EMULATOR_HOST."),
    _KEYS: Setting("Registers the schemas of keys, and encodes keys by them.", default="false", kind=_TYPE_BOOL),
    _PAYLOADS: Setting(
        "Registers the schemas of payloads, and encodes payloads by them.", default="false", kind=_TYPE_BOOL
    ),
}


@dataclass(frozen=True, slots=True)
class Schemas:
    """The parts of records that are encoded by schemas of Conduit's registry."""

    keys: bool = False
    payloads: bool = False

    def __bool__(self) -> bool:
        return self.keys or self.payloads


def configured(settings: Mapping[str, str], *, offered: bool) -> tuple[Config, Schemas]:
    """Our configuration of a pipeline's settings, and the schemas that they switch on.

    Args:
        settings: the settings.
        offered: whether Conduit has a schema service.

    Raises:
        ConfigurationError: naming every fault, by setting.
    """
    wanted = [name for name in (_KEYS, _PAYLOADS) if _truth(settings.get(name, ""))]
    errors = [] if offered else [f"{name}: this Conduit has no schema service" for name in wanted]
    try:
        config = configuration_of(settings)
    except ConfigurationError as error:
        raise ConfigurationError([*error.errors, *errors]) from None
    if errors:
        raise ConfigurationError(errors)
    return config, Schemas(keys=_KEYS in wanted, payloads=_PAYLOADS in wanted)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def configuration_of(settings: Mapping[str, str]) -> Config:
    """Our configuration of a pipeline's settings; an empty text counts as omitted, also as a part of a list.

    Raises:
        ConfigurationError: naming every fault, by setting.
    """
    given = {name: value.strip() for name, value in settings.items() if value.strip()}
    errors = [f"{name}: there is no such setting" for name in sorted(given.keys() - SETTINGS.keys())]
    errors += [f"{name}: it is missing" for name, about in SETTINGS.items() if about.required and name not in given]
    if given.get("edition") != "omni":
        errors += [f"{name}: it is missing" for name in ("project", "instance") if name not in given]
    if (start := given.get("start")) and is_relative(start):
        errors.append(
            f"start: {start} is another timestamp at each start of the pipeline: give one as RFC 3339, else what is"
            " committed before the first record is processed could be skipped"
        )
    elif start:
        try:
            parse_timestamp(start)
        except ValueError:
            errors.append(f"start: {start!r} is not a valid timestamp: write it like 2026-01-31T12:00:00Z")
    node: dict[str, object] = {"workers": "1"}
    errors += [
        f"{name}: {given[name]!r} is neither true nor false"
        for name in (_ENCRYPTED, _KEYS, _PAYLOADS)
        if name in given and _truth(given[name]) is None
    ]
    _encrypt(given, node, errors)
    for name, value in given.items():
        if name in SETTINGS and name not in (_ENCRYPTED, _KEYS, _PAYLOADS):
            section, _, option = name.rpartition(".")
            inner = node.setdefault(section, {}) if section else node
            assert isinstance(inner, dict)
            inner[option] = _parsed(SETTINGS[name], value)
    try:
        config = validated({"source": node, "envelope": {"format": "opencdc"}})
    except ConfigurationError as error:
        named = {line.partition(":")[0] for line in errors}
        found = map(in_settings, error.errors)
        errors += [line for line in found if line.partition(":")[0] not in named]
    if errors:
        raise ConfigurationError(errors)
    return config


def _encrypt(given: Mapping[str, str], node: dict[str, object], errors: list[str]) -> None:
    """A connection without any file is encrypted by a setting of its own: settings are texts."""
    wanted = _truth(given.get(_ENCRYPTED, ""))
    if wanted:
        node["tls"] = {}
    elif wanted is False and (
        others := sorted(name for name in given if name.startswith("tls.") and name != _ENCRYPTED)
    ):
        errors.append(f"{_ENCRYPTED}: it is false, and {others[0]} is given: omit one of them")


def _parsed(setting: Setting, value: str) -> object:
    if setting.is_list:
        return _parts(value)
    return _in_seconds(value) if setting.kind == _TYPE_DURATION else value


def _parts(value: str) -> list[str]:
    """An empty part would be the prefix of everything."""
    return [part.strip() for part in value.split(",") if part.strip()]


def _in_seconds(value: str) -> str:
    """A duration of Go's, such as ``1m30s``, in seconds; another text as it is, to be refused by its own name."""
    if not re.fullmatch(rf"\+?({_GO_PART})+", value, re.ASCII):
        return value
    total = sum(Decimal(number) * _GO_UNITS[unit] for number, unit in re.findall(_GO_PART, value, re.ASCII))
    return f"{total / SECOND:f}s"


def resumed(config: Config, position: bytes) -> tuple[Config, Position | None]:
    """The configuration with the start that a position says, and the mod after which to start.

    Args:
        config: the configuration.
        position: the one that Conduit kept; empty if it has none.

    Raises:
        ConfigurationError: it is damaged, or of another change stream.
    """
    if not position:
        return config, None
    try:
        after = Position.from_bytes(position)
    except DamagedPositionError:
        raise ConfigurationError([f"the pipeline's position is damaged: {CREATE_AGAIN} with a start"]) from None
    except ValueError as error:
        raise ConfigurationError([f"the pipeline's position: {error}"]) from None
    name = str(config.source.name)
    if after.stream != name:
        why = f"the pipeline's position belongs to change stream {after.stream}, not {name}"
        raise ConfigurationError([f"{why}: {CREATE_AGAIN}, or let it read that one"])
    source = config.source.model_copy(update={"start": format_rfc3339(after.commit_timestamp)})
    return config.model_copy(update={"source": source}), after


def specification() -> Message:
    """The answer to Conduit's first request, ``Specifier.Specify.Response``."""
    message = Specified()
    found = message.specification
    found.name = NAME
    found.summary = "Reads a change stream of Cloud Spanner as OpenCDC records, in commit order."
    found.description = (
        "Records have the position of their mod: after each of them reading can resume, without a loss. Tables, columns"
        " and keys come as the change stream has them; a column that was not captured is absent."
    )
    found.version = f"v{version('spanner-cdc-spark')}"
    found.author = "spanner-cdc-spark"
    for name, about in SETTINGS.items():
        parameter = found.source_params[name]
        parameter.default = about.default
        parameter.description = about.text
        parameter.type = about.kind
        if about.required:
            parameter.validations.add(type=_REQUIRED)
    return message
