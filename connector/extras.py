"""The extras of this distribution, and the one line that names an extra which is not installed.

Without an extra the distribution holds what a spool's consumer needs: Spark's source, files, and lakehouse tables. The
libraries that call Spanner, or serve metrics, are of the extra ``reader``: on a managed Spark, whose own versions of
gRPC and protobuf other packages need, they stay out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import util

from connector.errors import ConfigurationError, SpannerCdcError

EXTRAS: Mapping[str, Sequence[str]] = {
    "reader": (
        "google.cloud.spanner_v1",
        "grpc",
        "aiohttp",
        "cryptography",
        "google.api_core",
        "google.auth",
        "google.protobuf",
        "google.rpc",
        "prometheus_client",
        "requests",
        "yarl",
    ),
    "spark": ("pyspark", "py4j"),
    "bigquery": ("google.cloud.bigquery", "google.cloud.bigquery_storage_v1"),
    "gcs": ("google.cloud.storage",),
    "avro": ("fastavro",),
}
"""The modules of each extra. One that several extras bring is named with the first."""


def lacks(extra: str, what: str) -> str:
    """The line on a missing extra.

    Args:
        extra: one of :data:`EXTRAS`.
        what: needs it.
    """
    return f"{what} needs the extra {extra}, which is not installed: {installation(extra)}"


def installation(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'spanner-cdc-spark[{extra}]'"


def is_installed(*modules: str) -> bool:
    """True if every one of these modules can be imported; none is."""
    return all(map(_is_found, modules))


def _is_found(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # a parent is missing, or the module is hidden
        return False


def extra_of(error: ImportError) -> str | None:
    """The extra whose library could not be imported; None if it is of no extra."""
    if not error.name:
        return None
    missing = error.name.split(".")
    for extra, modules in EXTRAS.items():
        if any(_is_part(missing, module.split(".")) for module in modules):
            return extra
    return None


def _is_part(missing: list[str], module: list[str]) -> bool:
    """True if the missing one is the module, below it, or, as ``google.cloud``, above it."""
    shorter = min(len(missing), len(module))
    return missing[:shorter] == module[:shorter]


@contextmanager
def extras_named(what: str) -> Iterator[None]:
    """Surrounds code that imports what an extra brings.

    Args:
        what: needs it.

    Raises:
        ConfigurationError: an extra is not installed; it is named.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (extra := extra_of(error)) is None:
            raise
        raise ConfigurationError([lacks(extra, what)]) from error


@contextmanager
def with_extra(extra: str, what: str, failure: type[SpannerCdcError]) -> Iterator[None]:
    """Translates the ImportError of an optional library into a line that says what to install.

    Args:
        extra: the extra of this package that has the library.
        what: the beginning of the message: what needs it.
        failure: the error to raise.

    Raises:
        SpannerCdcError: ``failure``: the library is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise failure(
            f"{what} the extra {extra}, which is not installed", hint=f"Install it: {installation(extra)}."
        ) from error
