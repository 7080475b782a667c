"""Where a spool or files lie: a path of the local disk, or ``gs://bucket/prefix``."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from connector.errors import SpannerCdcError

_SCHEME = "gs://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def in_cloud_storage(path: str) -> bool:
    """Whether the path is of Cloud Storage."""
    return path.startswith(_SCHEME)


def absolute(path: str) -> str:
    """The path as another process with another working folder can use it."""
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())


def bucket_and_prefix(path: str) -> tuple[str, str]:
    """The bucket, and what the names of objects begin with: empty, or with a slash at its end.

    Raises:
        ValueError: it is no ``gs://bucket/prefix``.
    """
    bucket, _, prefix = path.removeprefix(_SCHEME).partition("/")
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    if not in_cloud_storage(path) or not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{path!r} is no gs://bucket/prefix: a bucket has 3 or more lower-case letters, digits or ._-")
    if any(part in ("", ".", "..") for part in parts) or not prefix.isprintable():
        raise ValueError(f"{path!r} has a part that is empty or made of dots")
    return bucket, f"{prefix}/" if prefix else ""


@contextmanager
def with_extra(extra: str, what: str, failure: type[SpannerCdcError]) -> Iterator[None]:
    """Around imports that only ``what`` needs.

    Raises:
        SpannerCdcError: ``failure``: they are not installed.
    """
    try:
        yield
    except ImportError as error:
        raise failure(
            f"{what} the extra {extra}, which is not installed",
            hint=f"Install it: pip install 'spanner-cdc-spark[{extra}]'.",
        ) from error


def with_extra_gcs(failure: type[SpannerCdcError]) -> AbstractContextManager[None]:
    """Around imports that only ``gs://`` needs; as :func:`with_extra`."""
    return with_extra("gcs", "gs:// paths need", failure)


def checked(path: str) -> str:
    """The path, if a spool or files may lie there.

    Raises:
        ValueError: they may not.
    """
    if in_cloud_storage(path):
        bucket_and_prefix(path)
    elif "://" in path:
        raise ValueError(f"{path!r}: this version takes a local path or gs://bucket/prefix")
    return path
