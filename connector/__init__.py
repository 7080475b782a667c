"""Reads Cloud Spanner change streams into transaction-complete, commit-ordered epochs.

The names in ``__all__`` are the public API; docs/embedding.md describes it, with examples. Version numbers promise that
these names, their signatures, the columns of a batch, the text of a checkpoint and the files of a spool stay compatible
within a major version. Before 1.0 a minor version may change them, and the changelog then says so. Every other name in
this package is internal.

Each name is imported when it is first used, so that ``import connector`` loads neither gRPC nor Arrow nor pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.api.commands import read, tail
    from connector.api.configuration import load_config
    from connector.api.epochs import Epoch, Event, Transaction
    from connector.api.sinks import EpochSink, run_sink
    from connector.api.spool import ConsumerProgress, Spool
    from connector.api.stop import Stop
    from connector.api.stream import read_epochs
    from connector.config import Config
    from connector.errors import (
        ConfigurationError,
        DataLostError,
        EventError,
        SpannerCdcError,
        SpoolError,
        SpoolInUseError,
        SpoolMismatchError,
        StreamError,
        TakenOverError,
        UnreachableError,
    )

__all__ = [
    "Config",
    "ConfigurationError",
    "ConsumerProgress",
    "DataLostError",
    "Epoch",
    "EpochSink",
    "Event",
    "EventError",
    "SpannerCdcError",
    "Spool",
    "SpoolError",
    "SpoolInUseError",
    "SpoolMismatchError",
    "Stop",
    "StreamError",
    "TakenOverError",
    "Transaction",
    "UnreachableError",
    "load_config",
    "read",
    "read_epochs",
    "run_sink",
    "tail",
]

_MODULES = {
    "Config": "connector.config",
    "ConsumerProgress": "connector.api.spool",
    "Epoch": "connector.api.epochs",
    "EpochSink": "connector.api.sinks",
    "Event": "connector.api.epochs",
    "Spool": "connector.api.spool",
    "Stop": "connector.api.stop",
    "Transaction": "connector.api.epochs",
    "load_config": "connector.api.configuration",
    "read": "connector.api.commands",
    "read_epochs": "connector.api.stream",
    "run_sink": "connector.api.sinks",
    "tail": "connector.api.commands",
}
"""The module that defines each name; a name of ``__all__`` that is not here is an error of :mod:`connector.errors`."""


__version__: str
"""The installed version; ``unknown`` where the package is not installed, as in an archive of its files."""

if not TYPE_CHECKING:  # else type checkers would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("connector.version").installed_version()
        elif name in __all__:
            with import_module("connector.extras").extras_named(f"connector.{name}"):
                value = getattr(import_module(_MODULES.get(name, "connector.errors")), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
