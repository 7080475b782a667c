"""The configuration, from a file or a mapping."""

from collections.abc import Mapping
from pathlib import Path

from connector.config import Config, load, validated


def load_config(source: str | Path | Mapping[str, object]) -> Config:
    """Reads and checks a configuration; docs/configuration.md has every option.

    Args:
        source: a YAML file, in which ``${VAR}`` stands for the environment's value; or a mapping of sections, such as
            ``{"source": {"project": ..., "instance": ..., "database": ..., "change_stream": ...}}``.

    Raises:
        ConfigurationError: it cannot be read, or has invalid options; all of them are named.
    """
    return validated(dict(source)) if isinstance(source, Mapping) else load(source)
