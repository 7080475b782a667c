"""The BigQuery sink's options."""

import re
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.config.sinks import SinkConfig
from connector.config.values import Duration
from connector.core.timestamps import SECOND
from spark_sink.sinks.bigquery.tables.layout import MOST_CLUSTERING_COLUMNS, TableLayouts
from spark_sink.sinks.bigquery.tables.partition import parse, to_text
from spark_sink.sinks.bigquery.tables.table import (
    MERGE_LOAD,
    SCHEMA_IN_DATASET,
    BigQueryTableOptions,
    BigQueryTarget,
    Mode,
)

CONSUMER = "bigquery"
"""The name of the sink's consumer in the spool, unless ``sink.name`` says otherwise."""

_VALID = {
    "dataset": (
        rf"([A-Za-z0-9_]|{re.escape(SCHEMA_IN_DATASET)}){{1,900}}",
        f"dataset: use letters, digits, underscores, {SCHEMA_IN_DATASET}",
    ),
    "kms_key": (
        r"projects/[^/\s]+/locations/[A-Za-z0-9-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+",
        "key: write projects/P/locations/L/keyRings/R/cryptoKeys/K, without a version",
    ),
    "prefix": (r"[A-Za-z0-9_]{0,100}", "table prefix: use up to 100 letters, digits, underscores"),
    "location": (r"[A-Za-z0-9-]+", "location: write EU, US or a region such as europe-west1"),
    "endpoint": (r"(https?://\S+)?", "address: write http://HOST:PORT or https://HOST"),
    "grpc_endpoint": (r"(?!https?:)\S*", "address: write HOST:PORT, without a scheme"),
}
"""By option, the pattern of its values, and what is wrong with others."""

_KEYS_OF = {"eu": "europe"}
"""Locations of keys, by those of datasets in small letters, where both have different names."""

FORMER_NAMES = r"bigquery/[0-9a-f]+_\d+(_\d+|_[0-9a-f]{16})*"
"""As :class:`spark_sink.sinks.shared.dead_letters.DeadLetters` takes it; a number may be an attempt's random one."""


class BigQueryConfig(SinkConfig):
    """Tables of BigQuery, as Datastream writes them."""

    type: Literal["bigquery"]
    project: str | None = None
    """The project of the tables; by default the source's."""
    dataset: str
    """One dataset for all tables, or one for each schema: ``replica_{schema}``."""
    mode: Mode = "merge"
    """The rows of a table: one for each row of the source (``merge``, ``merge-load``), or one for each change."""
    max_staleness: Duration = 3600 * SECOND
    """``merge``, ``merge-load``: how old what a query sees may be, 0s to 24h."""
    partition_by: dict[str, str] = Field(default={})
    """Partitioning by table: ``column``, ``column,month``, ``column,FROM,TO,STEP`` or ``_PARTITIONTIME``."""
    cluster_by: dict[str, tuple[str, ...]] = Field(default={})
    """Clustering by table: up to 4 columns, in order; without an entry the key's first four."""
    partition_expiry: dict[str, Duration] = Field(default={})
    """By table, how long BigQuery keeps a partition, such as ``90d``; without an entry for ever."""
    require_partition_filter: tuple[str, ...] = ()
    """``append-only``, ``changelog``: the tables of which BigQuery refuses queries without a filter by partition."""
    billing_project: str | None = None
    """The project that runs load jobs and statements, and is billed for them; by default that of the tables."""
    kms_key: str | None = None
    """A key of Cloud KMS that encrypts tables and datasets that are created; by default the dataset's own."""
    prune_by_keys: bool = Field(default=True, strict=True)
    """``merge-load``: a MERGE names keys of its rows, and reads less; BigQuery's job history then has them."""
    views: bool = Field(default=False, strict=True)
    """``append-only``, ``changelog``: views of the tables as of the newest published cut."""
    update_pairs: bool = Field(default=False, strict=True)
    """``append-only``: an update with old values is two rows: ``UPDATE-DELETE`` with these, and ``UPDATE-INSERT``."""
    prefix: str = ""
    """Begins the name of every table."""
    timestamps: Literal["micros", "text"] = "micros"
    """TIMESTAMP columns, or strings as Spanner gives them, with all their digits."""
    numeric: Literal["string", "bignumeric"] = "string"
    """The type of PostgreSQL's numeric."""
    arrays: Literal["repeated", "json"] = "repeated"
    """REPEATED columns, or JSON, which takes NULLs within arrays."""
    endpoint: str | None = None
    """An emulator's REST address, or a private endpoint, with its scheme."""
    grpc_endpoint: str | None = None
    """The same for rows, HOST:PORT."""
    location: str | None = None
    """The location in which missing datasets are created, such as EU; without one they must exist."""

    def table_options(self, default_schema: str = "") -> BigQueryTableOptions:
        """The options that decide which columns tables have."""
        return BigQueryTableOptions(
            self.dataset,
            self.mode,
            self.prefix,
            self.timestamps,
            self.numeric,
            self.arrays,
            default_schema,
            to_text(self.partition_by),
            self.layouts.to_text(),
            self.update_pairs,
        )

    @property
    def layouts(self) -> TableLayouts:
        """The options that decide the layout of tables."""
        return TableLayouts(self.partition_by, self.cluster_by, self.partition_expiry, self.require_partition_filter)

    def target(self, source: SourceConfig) -> BigQueryTarget:
        """The project and its endpoints."""
        return BigQueryTarget(
            self.project or source.project,
            self.endpoint or "",
            self.grpc_endpoint or "",
            self.billing_project or "",
            self.kms_key or "",
            tuple(sorted(source.labels.items())),
        )

    @field_validator(*_VALID)
    @classmethod
    def _is_valid(cls, value: str | None, info: ValidationInfo) -> str | None:
        pattern, what = _VALID[str(info.field_name)]
        if value is not None and not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is not a valid {what}")
        return value

    @field_validator("max_staleness")
    @classmethod
    def _within_a_day(cls, value: int) -> int:
        if value > 24 * 3600 * SECOND:
            raise ValueError("BigQuery accepts at most 24h")
        if value % SECOND:
            raise ValueError("BigQuery accepts whole seconds only")
        return value

    @field_validator("partition_by")
    @classmethod
    def _partitionings(cls, value: dict[str, str]) -> dict[str, str]:
        for spec in value.values():
            parse(spec)
        return value

    @field_validator("cluster_by")
    @classmethod
    def _clusterings(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for table, columns in value.items():
            if not 0 < len(set(columns)) == len(columns) <= MOST_CLUSTERING_COLUMNS:
                raise ValueError(f"{table!r} needs 1 to {MOST_CLUSTERING_COLUMNS} different columns")
        return value

    @field_validator("partition_expiry")
    @classmethod
    def _expiries(cls, value: dict[str, int]) -> dict[str, int]:
        if any(kept < 3600 * SECOND or kept % SECOND for kept in value.values()):
            raise ValueError("write an hour or longer, in whole seconds, such as 90d")
        return value


def check_options(sink: BigQueryConfig, envelope: EnvelopeConfig) -> None:
    """Checks options against each other and the envelope.

    Raises:
        ValueError: they contradict each other.
    """
    if sink.mode != MERGE_LOAD:
        if sink.endpoint and not sink.grpc_endpoint:
            raise ValueError("sink.grpc_endpoint: is needed beside sink.endpoint, because rows go over gRPC")
        if not sink.endpoint and (sink.grpc_endpoint or "").startswith(("127.0.0.1", "localhost", "[::1]")):
            raise ValueError("sink.endpoint: is needed beside an emulator's sink.grpc_endpoint, to make tables")
    sink.layouts.check()
    if sink.require_partition_filter and (sink.table_options().merges or sink.views):
        raise ValueError(
            "sink.require_partition_filter: is for modes append-only and changelog without views, because a MERGE, what"
            " BigQuery merges by itself, and views as of a cut read tables without such a filter"
        )
    if sink.kms_key and sink.location:
        of_key = sink.kms_key.split("/")[3].lower()
        if of_key != _KEYS_OF.get(sink.location.lower(), sink.location.lower()):
            raise ValueError(
                f"sink.kms_key: a key in {of_key} cannot encrypt a dataset in {sink.location}: take a key of the"
                " dataset's location"
            )
    if sink.views and sink.table_options().merges:
        raise ValueError(
            f"sink.views: mode {sink.mode} has no views as of a cut, because BigQuery reads a table's past by a"
            " constant time only: take mode append-only, or read the tables as of the time of a cut in _cuts"
        )
    if sink.update_pairs and sink.mode != "append-only":
        raise ValueError(f"sink.update_pairs: is for mode append-only, and sink.mode is {sink.mode}")
    if envelope.format == "opencdc":
        raise ValueError("envelope.format: opencdc is for files: a BigQuery sink needs the datastream envelope")
