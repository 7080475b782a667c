"""The public names of `connector`, their signatures and their fields are frozen here: a change is a new version."""

import dataclasses
import inspect
import subprocess
import sys
from importlib import metadata

import pytest

import connector
from tests.connector.api.embedding_page import PAGE
from tests.integration.commands import run

SIGNATURES = {
    "ConsumerProgress": "(name: str, epoch: int, updated: int) -> None",
    "Event": "(table: str, mod_type: str, key: dict[str, object], values: dict[str, object],"
    " before: dict[str, object] | None, uuid: str) -> None",
    "Spool": "(path: str | pathlib.Path) -> None",
    "Spool.consumers": "(self) -> list[connector.api.spool.ConsumerProgress]",
    "Spool.epochs": "(self, *, after: str | None = None) -> collections.abc.Iterator[connector.api.epochs.Epoch]",
    "Epoch.batches": "(self) -> collections.abc.Iterator[pyarrow.lib.RecordBatch]",
    "Epoch.table": "(self) -> pyarrow.lib.Table",
    "Epoch.transactions": "(self) -> collections.abc.Iterator[connector.api.epochs.Transaction]",
    "EpochSink.checkpoint": "(self) -> str | None",
    "EpochSink.write": "(self, epoch: connector.api.epochs.Epoch) -> None",
    "Stop": "() -> None",
    "Stop.request": "(self) -> None",
    "Stop.wait": "(self) -> None",
    "Transaction": "(id: str, commit_timestamp: int, tag: str, is_system: bool,"
    " events: tuple[connector.api.epochs.Event, ...]) -> None",
    "load_config": "(source: str | pathlib.Path | collections.abc.Mapping[str, object]) -> connector.config.Config",
    "read": "(config: connector.config.Config, *, stop: connector.api.stop.Stop | None = None) -> None",
    "read_epochs": "(config: connector.config.Config, *, after: str | None = None,"
    " stop: connector.api.stop.Stop | None = None)"
    " -> collections.abc.AsyncIterator[collections.abc.AsyncIterator[connector.api.epochs.Epoch]]",
    "run_sink": "(sink: connector.api.sinks.EpochSink,"
    " source: connector.config.Config | connector.api.spool.Spool, *, consumer: str | None = None,"
    " follow: bool = True, stop: connector.api.stop.Stop | None = None) -> None",
    "tail": "(config: connector.config.Config, out: <class 'BinaryIO'>, *,"
    " stop: connector.api.stop.Stop | None = None) -> None",
}
PROPERTIES = {
    "Epoch": {"checkpoint"},
    "Spool": {"first", "latest", "path", "stream"},
    "Stop": {"requested"},
}
EPOCH = ["stream", "number", "identity", "low", "high", "rows", "final", "gap"]
ERRORS = {
    "SpannerCdcError": ("Exception", 1),
    "ConfigurationError": ("SpannerCdcError", 2),
    "DataLostError": ("SpannerCdcError", 3),
    "EventError": ("SpannerCdcError", 4),
    "StreamError": ("SpannerCdcError", 1),
    "UnreachableError": ("StreamError", 1),
    "SpoolError": ("SpannerCdcError", 1),
    "SpoolInUseError": ("SpoolError", 1),
    "TakenOverError": ("SpoolInUseError", 1),
    "SpoolMismatchError": ("SpoolError", 2),
}


def public(name: str) -> object:
    value: object = connector
    for part in name.split("."):
        value = getattr(value, part)
    return value


def signature(name: str) -> str:
    """A signature without the module of the configuration, which may move within its package."""
    text = str(inspect.signature(public(name)))  # type: ignore[arg-type]
    return text.replace(connector.Config.__module__, "connector.config")


def test_the_public_names_are_these() -> None:
    functions_and_classes = {name.partition(".")[0] for name in SIGNATURES}
    assert set(connector.__all__) == functions_and_classes | {"Config"} | ERRORS.keys()
    assert connector.__all__ == sorted(connector.__all__)
    assert set(connector.__all__) <= set(dir(connector))


@pytest.mark.parametrize("name", SIGNATURES)
def test_each_signature_is_frozen(name: str) -> None:
    assert signature(name) == SIGNATURES[name]


@pytest.mark.parametrize("name", ["Epoch", "EpochSink", "Spool", "Stop"])
def test_each_class_has_these_public_members(name: str) -> None:
    of_class = public(name)
    assert isinstance(of_class, type)
    found = {member for member in vars(of_class) if not member.startswith("_")}
    methods = {member.partition(".")[2] for member in SIGNATURES if member.startswith(f"{name}.")}
    assert found == methods | PROPERTIES.get(name, set())


def test_an_epoch_has_these_fields() -> None:
    fields = [field.name for field in dataclasses.fields(connector.Epoch)]
    assert [field for field in fields if not field.startswith("_")] == EPOCH


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_has_its_base_and_exit_code(name: str) -> None:
    error = public(name)
    assert isinstance(error, type)
    assert issubclass(error, Exception)
    assert (error.__bases__[0].__name__, getattr(error, "exit_code", None)) == ERRORS[name]


def test_the_version_is_that_of_the_distribution_and_of_the_command() -> None:
    assert connector.__version__ == metadata.version("spanner-cdc-spark")
    done = run("--version")
    assert done.out.decode().split()[-1] == connector.__version__


def test_importing_connector_loads_no_library() -> None:
    program = "import connector, sys; print([n for n in ('grpc', 'pyarrow', 'pydantic', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_reading_a_spool_needs_neither_grpc_nor_spark() -> None:
    program = "import connector, sys; connector.Spool('x'); print([n for n in ('grpc', 'pyspark') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        public("Nothing")


def test_every_public_name_has_a_line_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in connector.__all__ if f"`{name}" not in page] == []
