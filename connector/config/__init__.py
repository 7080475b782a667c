"""The configuration: its sections, the kinds of sinks, and the file that holds it."""

from connector.config.loading import Config, load, validated
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig, SpoolConfig, StatusConfig
from connector.config.values import parse_duration, parse_size, resolve_timestamp

__all__ = [
    "Config",
    "EnvelopeConfig",
    "SourceConfig",
    "SparkConfig",
    "SpoolConfig",
    "StatusConfig",
    "load",
    "parse_duration",
    "parse_size",
    "resolve_timestamp",
    "validated",
]
