"""The sections of a configuration that every sink shares; each is a frozen pydantic model."""

import os
import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from connector.config.address import DatabaseAddress, is_host, is_host_and_port, is_loopback
from connector.config.backfill_rules import BackfillRules
from connector.config.columns import Columns
from connector.config.directed_reads import DirectedReads
from connector.config.omni import NAME, OmniServer, Tls
from connector.config.values import Duration, Size, TimestampText, is_relative, parse_duration, resolve_timestamp
from connector.core.masking.rules import RulesFingerprint
from connector.core.timestamps import SECOND
from connector.process import EMULATOR_HOST
from connector.spool.manifest import SourceName
from connector.spool.storage.locations import absolute, checked, expanded, named, with_user_project

PathText = Annotated[str, AfterValidator(checked)]
"""A folder, or ``gs://bucket/prefix``."""

_SWITCH = TypeAdapter(bool)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")

SHORTEST_HEARTBEAT, DOCUMENTED_HEARTBEAT = SECOND // 10, SECOND
"""The shortest heartbeat that connectors ask Spanner for, and the shortest that its documentation names."""


def emulator_of_environment() -> str | None:
    """The address of the emulator that the environment names, or None."""
    return os.environ.get(EMULATOR_HOST) or None


class Section(BaseModel):
    """A mapping of options; an unknown option is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Tables(Section):
    """The tables whose events are kept: shell patterns over table names, ``schema.table`` in a named schema."""

    include: tuple[str, ...] = ()
    """Patterns of the tables whose events are kept; if empty, all tables of the change stream."""
    exclude: tuple[str, ...] = ()
    """Patterns of tables whose events are dropped, even if ``include`` names them."""


class ServerOptions(Section):
    """The options that say which Spanner a database is in, and how it is reached."""

    edition: Literal["cloud", "omni"] = "cloud"
    """``cloud`` is the service, or an emulator; ``omni`` is a server of Spanner Omni: ``project`` and ``instance`` are
    ``default``, and can be omitted."""
    endpoint: str | None = Field(default=None, validate_default=True)
    """A regional or private endpoint of Spanner; with edition omni the server's address, HOST:PORT."""
    tls: Tls | None = None
    """With edition omni: encrypts the connection; without it, it is plain text. ``ca``, ``certificate`` and ``key`` are
    PEM files: ``{}`` trusts public CAs, and a server that wants a client's certificate gets that."""
    token_file: str | None = None
    """With edition omni and ``tls``: a file with the user's token, which is read again when it changes."""
    emulator_host: str | None = None
    """An emulator's address, HOST:PORT; else that of ``SPANNER_EMULATOR_HOST``."""

    def omni(self, section: str) -> OmniServer | None:
        """The access to a server of Spanner Omni, or None; ``section`` is this one, for messages."""
        return OmniServer(self.tls, self.token_file, section) if self.edition == "omni" else None

    @model_validator(mode="before")
    @classmethod
    def _names_of_omni(cls, node: object) -> object:
        if not isinstance(node, dict) or node.get("edition") != "omni":
            return node
        return node | {name: NAME for name in ("project", "instance") if node.get(name) is None}

    @field_validator("project", "instance", check_fields=False)
    @classmethod
    def _is_default_with_omni(cls, value: str | None, info: ValidationInfo) -> str | None:
        if _edition(info) == "omni" and value != NAME:
            raise ValueError(f"{value!r}: edition omni has only {NAME}: omit it")
        return value

    @field_validator("endpoint")
    @classmethod
    def _is_given_with_omni(cls, value: str | None, info: ValidationInfo) -> str | None:
        if _edition(info) != "omni":
            if value and not is_host(value):  # which may be a URL with a password
                raise ValueError("it is not the address of an endpoint: write HOST or HOST:PORT")
            return value
        if not value:
            raise ValueError("is needed with edition omni: the server's HOST:PORT")
        if not is_host_and_port(value):
            raise ValueError(f"{value!r} is not the address of a server: write HOST:PORT")
        return value

    @field_validator("tls", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        """Flat options have no mapping without entries, and say true instead."""
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if isinstance(value, bool):
            return {} if value else None
        if value is not None and not isinstance(value, dict | Tls):
            raise ValueError("write {} or its options ca, certificate and key")
        return value

    @field_validator("tls", "token_file")
    @classmethod
    def _is_of_omni(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and _edition(info) == "cloud":
            raise ValueError("is for edition omni: Google's endpoints have certificates and credentials of their own")
        return value

    @field_validator("tls")
    @classmethod
    def _whole_paths(cls, value: Tls | None) -> Tls | None:
        return value and Tls(*map(_whole, (value.ca, value.certificate, value.key)))

    @field_validator("token_file")
    @classmethod
    def _whole_path(cls, value: str | None) -> str | None:
        return _whole(value)

    @field_validator("token_file")
    @classmethod
    def _is_encrypted(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("tls", _FAULTY) is None:
            raise ValueError("a token is not sent in plain text: set tls, too")
        return value

    @field_validator("emulator_host")
    @classmethod
    def _is_not_of_omni(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and _edition(info) == "omni":
            raise ValueError("with edition omni the address is endpoint: omit it")
        return value


_FAULTY = object()


def _whole(path: str | None) -> str | None:
    """The path of a file, made independent of the working folder: worker processes and executors read it, too."""
    if path == "":
        raise ValueError("name a file, or omit it")
    return path and absolute(expanded(path))


def _edition(info: ValidationInfo) -> str | None:
    """The edition; None if that option itself is invalid."""
    return info.data.get("edition")


_MOST_LABELS = 64


class SourceConfig(ServerOptions):
    """The change stream and how to read it."""

    project: str = Field(min_length=1)
    """The project of Google Cloud."""
    instance: str = Field(min_length=2)
    """The Spanner instance."""
    database: str = Field(min_length=1)
    """The database."""
    change_stream: str
    """The change stream."""
    start: TimestampText = "now"
    """The start of reading while the spool has no epochs: ``now``, an offset such as ``-15m``, or RFC 3339 in quotes.
    """
    end: TimestampText | None = None
    """The last commit timestamp to read, inclusive; without one reading does not end. A later run with a later end
    continues."""
    heartbeat: Duration = SECOND
    """The longest lag of the watermark on idle partitions, 100ms to 300s; Spanner's documentation says 1s to 300s."""
    rpc_priority: Literal["low", "medium", "high"] = "high"
    """The priority of the queries in Spanner."""
    database_role: str | None = None
    """A role of fine-grained access control to read with."""
    placements: tuple[str, ...] | None = None
    """The placements to read, of a change stream with ``per_placement_tvf``; by default all, also those that are added.
    The spool notes them, and a later run with others is refused."""
    directed_reads: DirectedReads | None = None
    """The replicas that serve reads: ``include`` or ``exclude``, each a list of at most 10 with ``location``, ``type``
    (READ_ONLY or READ_WRITE) or both. With ``include``, ``auto_failover_disabled: true`` lets a read fail where none is
    healthy."""
    reader: Literal["process", "executors"] = "process"
    """The processes that read: those of this machine, or Spark's executors, window by window."""
    workers: int | None = Field(default=None, ge=1, le=64)
    """Processes that read beside the daemon's own; by default half the cores, 4 at most, and 1 against an emulator."""
    tables: Tables = Tables()
    """The tables whose events are kept."""
    columns: Columns = Columns()
    """The columns that are excluded or hashed before anything is kept. The spool notes the rules and a fingerprint of
    each salt, and a later run with others is refused."""
    skip_transaction_tags: tuple[str, ...] = ()
    """Prefixes of transaction tags whose transactions are dropped, against replication loops."""
    late_records: Literal["stop", "dead-letter"] = "stop"
    """A record that comes after its query has proved everything up to it stops the stream, or is a dead letter."""
    backfill: BackfillRules | None = None
    """``run``: deliver every row as of the start first, then the stream; ``start`` must be now. ``true``, or options:
    ``exclude`` lists patterns of tables that are left out, ``where`` has a condition in SQL for each table whose rows
    are filtered, ``max_tasks`` limits the tasks of each backfill that read at once, and ``new_tables`` also backfills
    each table that is watched since later."""
    complete_rows: bool = False
    """Reads columns that were not captured: those that an UPDATE omits, and the rows that DELETEs have removed."""
    labels: dict[str, str] = Field(default={})
    """Labels of the stream: on the metric ``spanner_cdc_stream_info`` as ``label_NAME``, and on what a sink creates and
    runs in a destination that has labels."""
    emulator_host: str | None = Field(default=None, validate_default=True)
    """An emulator's address, HOST:PORT; else that of ``SPANNER_EMULATOR_HOST``."""

    @property
    def name(self) -> SourceName:
        """The change stream, as a spool names it."""
        return SourceName(
            project=self.project, instance=self.instance, database=self.database, change_stream=self.change_stream
        )

    @property
    def address(self) -> DatabaseAddress:
        """The database, and how it is reached."""
        return DatabaseAddress(
            self.project,
            self.instance,
            self.database,
            self.endpoint,
            self.emulator_host,
            self.database_role,
            self.directed_reads,
            self.omni("source"),
            self.columns.rules,
        )

    @property
    def rules_fingerprint(self) -> RulesFingerprint | None:
        """The note of ``columns`` in a spool; None if nothing is excluded or hashed."""
        rules = self.columns.rules
        return None if rules is None else rules.fingerprint

    @field_validator("emulator_host")
    @classmethod
    def _or_of_environment(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value or (None if _edition(info) == "omni" else emulator_of_environment())

    @field_validator("backfill", mode="before")
    @classmethod
    def _switched(cls, value: object) -> object:
        if value is None or isinstance(value, dict | BackfillRules):
            return value
        try:
            return {} if _SWITCH.validate_python(value) else None
        except ValidationError:
            raise ValueError("write true, false, or its options exclude, where, max_tasks and new_tables") from None

    @field_validator("labels")
    @classmethod
    def _of_google_cloud(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) or not re.fullmatch(r"[a-z0-9_-]{0,63}", text):
                raise ValueError(
                    f"{name}: {text!r} is not a valid label: a name begins with one of a to z, and has up to"
                    " 63 of a to z, digits and underscores, a value also dashes"
                )
        if len(value) > _MOST_LABELS:
            raise ValueError(f"Google Cloud takes at most {_MOST_LABELS} labels")
        return value

    @field_validator("workers", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        if value is True or value is False:  # YAML's yes and no would count as 1 and 0
            raise ValueError(f"{value!r} is not a number of processes")
        return value

    @field_validator("placements")
    @classmethod
    def _of_some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not value:
            raise ValueError("it names no placement: name some, or omit it to read all")
        return value

    @field_validator("change_stream")
    @classmethod
    def _identifier(cls, value: str) -> str:
        if not _IDENTIFIER.fullmatch(value):
            raise ValueError(f"{value!r} is not a valid change stream name: use letters, digits and underscores")
        return value

    @field_validator("heartbeat")
    @classmethod
    def _within_spanners_bounds(cls, value: int) -> int:
        if not SHORTEST_HEARTBEAT <= value <= 300 * SECOND:
            raise ValueError("Spanner takes a heartbeat of 1s to 300s, and may take one from 100ms on")
        return value

    @model_validator(mode="after")
    def _backfill_decides_start(self) -> "SourceConfig":
        if self.backfill is not None and self.start != "now":
            raise ValueError(
                f"start {self.start}: with backfill the start is the backfill's timestamp: leave it at now"
            )
        return self

    @model_validator(mode="after")
    def _executors_need_no_workers(self) -> "SourceConfig":
        if self.reader == "executors" and self.workers is not None:
            raise ValueError("workers: with reader executors Spark's executors read: omit it")
        return self

    @model_validator(mode="after")
    def _end_after_start(self) -> "SourceConfig":
        # A relative and an absolute timestamp are compared once Spanner's clock is known.
        comparable = self.end is not None and is_relative(self.end) is is_relative(self.start)
        if self.end is not None and comparable and resolve_timestamp(self.end, 0) < resolve_timestamp(self.start, 0):
            raise ValueError(f"end {self.end} is before start {self.start}")
        return self


class SpoolConfig(Section):
    """The place where epochs are kept, and the limit of their bytes."""

    path: PathText = "./spool"
    """A local folder, or ``gs://bucket/prefix``."""
    user_project: str | None = None
    """The project that is billed for requests to the bucket, where the requester pays."""
    seal_interval: Duration = SECOND
    """The time for which an epoch gathers complete transactions before it is sealed; a shorter ``source.heartbeat`` is
    the default instead."""
    max_bytes: Size = Field(default=10 * 1024**3, gt=0)
    """Bytes of segments, manifests and cuts; beyond this the reader waits for its consumers."""
    keep: Duration = 0
    """The commit time that epochs are kept for, also when all consumers have passed them; up to four fifths of
    ``max_bytes``."""

    @model_validator(mode="before")
    @classmethod
    def _billed(cls, node: object) -> object:
        return with_user_project(node, ["path"])


class EnvelopeConfig(Section):
    """The format of an event."""

    format: Literal["datastream", "opencdc"] = "datastream"
    """Datastream's events, or OpenCDC records."""
    stream_name: str | None = None
    """``stream_name`` of each event; by default the change stream's path."""
    read_method: str = "spanner-cdc"
    """``read_method`` of each event."""


def _spark_text(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class SparkConfig(Section):
    """The Spark session of ``spanner-cdc run``."""

    master: str = "local[*]"
    """The cluster of ``run``."""
    checkpoint: Annotated[str, AfterValidator(named)] = "./checkpoint"
    """The checkpoint of the sink's query; a local folder, or what Spark's file systems reach."""
    trigger: str = "1s"
    """The least time between the starts of two micro-batches; a shorter ``source.heartbeat`` is the default instead."""
    config: dict[str, str] = {}
    """Further options of Spark, by their names."""

    @field_validator("config", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        """Spark takes texts: YAML's numbers and booleans as Spark writes them."""
        if not isinstance(value, dict):
            return value
        return {name: _spark_text(one) if isinstance(one, bool | int | float) else one for name, one in value.items()}

    @field_validator("trigger")
    @classmethod
    def _duration(cls, value: str) -> str:
        parse_duration(value)
        return value

    @property
    def trigger_interval(self) -> int:
        """Nanoseconds between two micro-batches."""
        return parse_duration(self.trigger)


class StatusConfig(Section):
    """The address of the status page and the metrics; with a ``token`` they are served only to clients that send it."""

    host: str = "127.0.0.1"
    """The address that is served. With any other than loopback set ``token``."""
    port: int = Field(default=8080, ge=0, le=65535)
    """The port; 0 for any that is free, which the log names."""
    token: str = Field(default="", repr=False)
    """Wanted as a bearer token of every client, but for the page itself, ``/healthz`` and ``/readyz``."""

    @field_validator("host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        try:
            if value.encode("idna"):
                return value
        except UnicodeError:
            pass
        raise ValueError(f"{value!r} is not an address of a machine: use 127.0.0.1 or 0.0.0.0")

    @field_validator("token")
    @classmethod
    def _can_be_sent(cls, value: str, info: ValidationInfo) -> str:
        value = value.strip()  # the line feed of a file; HTTP would not send it
        if not value and not is_loopback(info.data.get("host", "")):
            raise ValueError("it is empty, so that everyone could read the status: set it, or omit it")
        if not value.isprintable():
            raise ValueError("it has control characters, which no client can send")
        return value
