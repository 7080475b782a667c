"""Reads a configuration: YAML with the names of the contract, checked before anything starts, all faults at once.

``${VAR}`` within a value stands for the value of an environment variable.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PlainValidator, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from connector.config.sections import (
    DOCUMENTED_HEARTBEAT,
    EnvelopeConfig,
    Section,
    SourceConfig,
    SparkConfig,
    SpoolConfig,
    StatusConfig,
)
from connector.config.sinks import DEFAULT_SINK, SinkConfig, sink_names, sink_type
from connector.config.values import Duration, parse_duration
from connector.config.variables import masked, replaced
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError, advice
from connector.spool.storage.locations import in_cloud_storage


class _Loader(yaml.SafeLoader):
    """YAML in which no option is given twice: PyYAML keeps the last one and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, "an option is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_NAMED_IN_YAML = re.compile(r"\b(tag handle|tag|alias) .*", re.DOTALL)


def _is_short(heartbeat: object) -> bool:
    with suppress(ValueError):
        return parse_duration(heartbeat) < DOCUMENTED_HEARTBEAT
    return False


def _sink(node: object) -> SinkConfig:
    """The section ``sink``, as the kind of sink that it names reads it."""
    if isinstance(node, SinkConfig):
        return node
    name = node.get("type", DEFAULT_SINK) if isinstance(node, dict) else DEFAULT_SINK
    try:
        kind = sink_type(str(name))
    except ConfigurationError as error:
        raise PydanticCustomError("sink_type", "{fault}", {"fault": str(error)}) from error
    sink = kind.config_type.model_validate(node)
    if not sink.has_default_name and sink.name in sink_names():
        raise PydanticCustomError(
            "sink_type", "{fault}", {"fault": f"sink.name: {sink.name} is a type: choose another"}
        )
    # Names of dead letters follow from the spool, so that each sink needs a folder of its own.
    return sink.model_copy(update={"dead_letters": f"{sink.dead_letters.rstrip('/')}/{sink.name}"})


Sections = Callable[[Mapping[str, object]], Collection[str]]
"""Returns the names of the sections that are needed of a parsed file."""


class Config(Section):
    """A whole configuration file."""

    source: SourceConfig
    spool: SpoolConfig = SpoolConfig()
    envelope: EnvelopeConfig = EnvelopeConfig()
    sink: Annotated[SinkConfig, PlainValidator(_sink)] = Field(default={}, validate_default=True)
    """The destination of ``spanner-cdc run``."""
    spark: SparkConfig = SparkConfig()
    status: StatusConfig = StatusConfig()
    drain_timeout: Duration = 30 * SECOND
    """The longest time that Ctrl-C and SIGTERM may drain; what is not sealed by then is read again."""
    _file: str = ""
    _sections: Sections | None = None

    @property
    def file(self) -> str:
        """The file that it was read from, as that was named; empty if it was read from none."""
        return self._file

    def read_from(self, file: str | Path, sections: Sections | None = None) -> "Config":
        """The same configuration, read from a file; ``sections`` as of :func:`load`."""
        copy = self.model_copy()
        copy._file, copy._sections = str(file), sections  # noqa: SLF001 - its own
        return copy

    def again(self) -> "Config":
        """The configuration as its file is now, with the same sections.

        Raises:
            ConfigurationError: naming every fault; also if it was read from no file.
        """
        if not self._file:
            raise ConfigurationError(["the daemon's configuration was read from no file: restart it with another one"])
        return load(self._file, self._sections)

    @model_validator(mode="before")
    @classmethod
    def _shorter_than_a_second(cls, node: object) -> object:
        """With a heartbeat below a second, sealing and the sink keep its pace unless their options are given."""
        source = node.get("source") if isinstance(node, dict) else None
        heartbeat = source.get("heartbeat") if isinstance(source, dict) else None
        if not isinstance(node, dict) or heartbeat is None or not _is_short(heartbeat):
            return node
        followed = dict(node)
        for section, option in (("spool", "seal_interval"), ("spark", "trigger")):
            given = node.get(section, {})
            if isinstance(given, dict):
                followed[section] = {option: heartbeat, **given}
        return followed

    @model_validator(mode="after")
    def _executors_reach_the_spool(self) -> "Config":
        path, master = self.spool.path, self.spark.master
        if self.source.reader == "executors" and not (in_cloud_storage(path) or master.startswith("local")):
            raise ValueError(
                f"spool.path: {path} is a folder of this machine, which executors of {master} do not reach:"
                " use gs://bucket/prefix"
            )
        return self

    @model_validator(mode="after")
    def _schemas_are_changed(self) -> "Config":
        if self.source.columns.rules is not None and self.sink.copies_schemas:
            raise ValueError(
                "sink.create_tables: it creates columns as the source has them, and source.columns excludes or hashes"
                " some: create the tables by hand, hashed columns as STRING(64)"
            )
        return self

    @model_validator(mode="after")
    def _check_sink_options(self) -> "Config":
        sink_type(self.sink.type).check_options(self.sink, self.envelope)
        return self


def load(path: str | Path, sections: Sections | None = None) -> Config:
    """Reads a configuration file.

    Args:
        path: of the file.
        sections: returns the names of the sections that are needed; the others have their defaults, whatever the file
            has there. None for all.

    Raises:
        ConfigurationError: naming every fault, by field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{path}: it is not UTF-8"]) from error
    except OSError as error:
        hint = advice(error, access="read")
        what = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise ConfigurationError([f"{path}: {what}{f'. {hint}' if hint else ''}"]) from error
    missing: list[str] = []
    try:
        options = _parsed(text, sections, missing)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError([f"{path} is not YAML: {_fault_of_yaml(error)}"]) from None
    if not isinstance(options, dict):
        raise ConfigurationError([f"{path} holds no mapping of sections such as source and spool"])
    if missing:
        raise ConfigurationError([f"{path}: {one}" for one in missing])
    return validated(options).read_from(path, sections)


def _parsed(text: str, sections: Sections | None, missing: list[str]) -> object:
    """The options of a file, without the sections that are not needed.

    Raises:
        yaml.YAMLError: it is not YAML; a ValueError and a RecursionError say so, too.
    """
    node: object = yaml.load(masked(text), _Loader)  # noqa: S506 - a SafeLoader
    options = replaced(node, os.environ, missing)
    if sections is None or not (isinstance(node, dict) and isinstance(options, dict)):
        return options
    unneeded = Config.model_fields.keys() - {*sections(options)}
    missing.clear()
    return replaced({name: value for name, value in node.items() if name not in unneeded}, os.environ, missing)


def validated(node: dict[str, object]) -> Config:
    """The configuration in a mapping.

    Raises:
        ConfigurationError: naming every fault, by field.
    """
    try:
        return Config.model_validate(node)
    except ValidationError as error:
        raise ConfigurationError([_fault(detail, node) for detail in error.errors()]) from error


def _fault_of_yaml(error: Exception) -> str:
    """The error of a YAML text and its place, without the text itself, which may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, problem = error.problem_mark, _NAMED_IN_YAML.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"position {error.position}: {error.reason}"
    if isinstance(error, RecursionError):
        return "an alias is a part of what it stands for, or values are nested too deeply"
    return "it holds a date or a number that does not exist"


def _fault(detail: ErrorDetails, node: Mapping[str, object]) -> str:
    field = ".".join(str(part) for part in detail["loc"])
    match detail["type"]:
        case "sink_type":
            return detail["msg"]
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{field}: write its options below it, one a line"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"{field}: there is no such option{_suggestion(detail['loc'], node)}"
        case "missing":
            return f"{field}: is needed"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"{field}: {message}" if field else message


def _suggestion(place: tuple[int | str, ...], node: Mapping[str, object]) -> str:
    """The option that was probably meant: a similar name in the same section, or the same name in another."""
    *sections, name = (str(part) for part in place)
    similar = get_close_matches(name, _options(sections, node), n=1)
    elsewhere = [f"{section}.{name}" for section in Config.model_fields if name in _options([section], node)]
    found = [".".join([*sections, similar[0]])] if similar else elsewhere
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _options(sections: Sequence[str], node: Mapping[str, object]) -> list[str]:
    """The names of the options of a section."""
    model: object = Config
    for name in sections:
        if not (isinstance(model, type) and issubclass(model, Section) and name in model.model_fields):
            return []
        model = _sink_options(node.get(name)) if name == "sink" else model.model_fields[name].annotation
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, Section) else []


def _sink_options(given: object) -> type[SinkConfig] | None:
    """The model of the section ``sink``; None if its type is not known, which is an error of its own."""
    kind = given.get("type", DEFAULT_SINK) if isinstance(given, dict) else DEFAULT_SINK
    with suppress(ConfigurationError):
        return sink_type(str(kind)).config_type
    return None
