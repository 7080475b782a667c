"""Paths and URLs of spools and files: of the local disk, or ``gs://bucket/prefix``.

A URL may name the project that is billed for requests: ``gs://PROJECT@bucket/prefix``. So whoever has the URL, such as
a task on an executor, has all that is needed to reach the bucket.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from connector.errors import SpannerCdcError
from connector.extras import with_extra

_SCHEME = "gs://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{1,100}")


def in_cloud_storage(path: str) -> bool:
    """True if the path is a URL of Cloud Storage."""
    return path.startswith(_SCHEME)


def absolute(path: str) -> str:
    """The path, made independent of the working folder; a URL without slashes at its end."""
    if "://" in path:
        return path.rstrip("/")
    with suppress(ValueError):  # a folder whose name begins with a tilde
        path = expanded(path)
    return str(Path(path).absolute())


def expanded(path: str) -> str:
    """The path, with the home folder for a leading ``~`` or ``~user``.

    Raises:
        ValueError: there is no such user, or no home folder.
    """
    if not path.startswith("~"):  # Path("./~") would lose its dot
        return path
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        raise ValueError(f"{path!r}: there is no such home folder: write the whole path, or ./{path}") from None


def bucket_and_prefix(path: str) -> tuple[str, str]:
    """Splits a URL into the bucket and the prefix of object names, which is empty or ends with a slash.

    Raises:
        ValueError: it is not a valid ``gs://bucket/prefix``.
    """
    project = user_project(path)
    if project is not None and not _PROJECT.fullmatch(project):
        raise ValueError(f"{path!r} is not a valid gs://PROJECT@bucket/prefix: {project!r} is not a project's id")
    bucket, _, prefix = unbilled(path).removeprefix(_SCHEME).partition("/")
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    if not in_cloud_storage(path) or not _BUCKET.fullmatch(bucket):
        rule = "a bucket has 3 or more lower-case letters, digits or ._-"
        raise ValueError(f"{path!r} is not a valid gs://bucket/prefix: {rule}")
    if any(part in ("", ".", "..") for part in parts) or not prefix.isprintable():
        raise ValueError(f"{path!r} is not valid: a part of it is empty or made of dots")
    return bucket, f"{prefix}/" if prefix else ""


def user_project(path: str) -> str | None:
    """The project that is billed for requests to a bucket, if its URL names one."""
    if not in_cloud_storage(path):
        return None
    project, at, _ = path.removeprefix(_SCHEME).partition("/")[0].rpartition("@")
    return project if at else None


def unbilled(path: str) -> str:
    """The path without the project that is billed: the same place."""
    project = user_project(path)
    return path if project is None else path.replace(f"{project}@", "", 1)


def billed(path: str, project: str) -> str:
    """The URL of a bucket, with the project that is billed; a path of the local disk as it is.

    Raises:
        ValueError: it names another project.
    """
    if not in_cloud_storage(path) or user_project(path) == project:
        return path
    if user_project(path) is not None:
        raise ValueError(f"{path!r} names another project than user_project, {project!r}: name it in one place")
    return f"{_SCHEME}{project}@{path.removeprefix(_SCHEME)}"


def with_user_project(node: object, options: Sequence[str]) -> object:
    """A section's options as they were given: those with a bucket's URL have the project of ``user_project`` in it.

    Raises:
        ValueError: the project's id is not valid, none of the options is a bucket's URL, or one names another project.
    """
    project = node.get("user_project") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(project, str):
        return node
    if not _PROJECT.fullmatch(project):
        raise ValueError(f"user_project {project!r} is not a project's id")
    paths = {name: path for name in options if isinstance(path := node.get(name), str) and in_cloud_storage(path)}
    if not paths:
        raise ValueError(f"user_project is for a bucket, and {' or '.join(options)} names none (gs://bucket/prefix)")
    return {**node, **{name: billed(path, project) for name, path in paths.items()}}


def with_extra_gcs(failure: type[SpannerCdcError]) -> AbstractContextManager[None]:
    """Surrounds imports that only ``gs://`` needs; see :func:`connector.extras.with_extra`."""
    return with_extra("gcs", "gs:// paths need", failure)


def checked(path: str) -> str:
    """The path, if it is valid for a spool or for files, with the home folder for a leading ``~``.

    Raises:
        ValueError: it is not.
    """
    if in_cloud_storage(path):
        bucket_and_prefix(path)
    elif "://" in path:
        raise ValueError(f"{path!r}: this version takes a local path or gs://bucket/prefix")
    return named(path)


def named(path: str) -> str:
    """The path of an option, with the home folder for a leading ``~``.

    Raises:
        ValueError: it is empty, or there is no such home folder.
    """
    if not path.strip():  # a variable that is set to nothing
        raise ValueError("it is empty: name a folder, or omit it")
    return expanded(path)
