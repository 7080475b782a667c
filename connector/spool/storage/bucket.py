"""A bucket of Cloud Storage: reads and writes whole objects, and translates Google's exceptions into one line.

An object appears whole or not at all, even if the network breaks in the middle of an upload. A precondition names the
generation that an upload may replace: 0 for no object. Transient errors are retried with backoff, as Google's library
does it. This module needs the extra ``gcs`` and is imported only for ``gs://`` paths.

Credentials are found as Google's libraries find them. An emulator's address, from an option or from
STORAGE_EMULATOR_HOST, is used without any. Messages hold neither upload URLs nor a server's text, because either may
hold a session's secret; Google's exceptions hold both, so they are not kept as causes.
"""

import base64
import functools
import http.client
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import requests
import urllib3
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth import exceptions as auth_exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage import exceptions as storage_exceptions
from google.cloud.storage.retry import DEFAULT_RETRY

from connector.core.health.retries import STORAGE, Cause
from connector.credentials import why_unusable
from connector.errors import SpannerCdcError
from connector.proxies import direct_session, https_proxy, is_of_proxy
from connector.proxies import hint as proxy_hint
from connector.refusals import Refusal
from connector.spool.storage.failing import FAILING
from connector.spool.storage.locations import bucket_and_prefix, user_project
from connector.spool.storage.refusals import refusal

PATIENCE = 60.0
"""Seconds for which transient errors are retried."""

EMULATOR = "STORAGE_EMULATOR_HOST"
"""The environment variable with an emulator's address, as Google's libraries read it."""

REQUIRED = ("storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list")
"""The permissions that a spool or a sink needs; ``roles/storage.objectUser`` has them."""

_HOST = "storage.googleapis.com"

_CHUNK = 8 * 1024 * 1024
"""Bytes of a large upload that are in memory at a time."""

_UPLOADS = 3
"""Attempts at a large upload if the server accepts only a part of a chunk."""

_ERRORS = (
    exceptions.GoogleAPIError,
    auth_exceptions.GoogleAuthError,
    storage_exceptions.InvalidResponse,
    storage_exceptions.DataCorruption,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
)
_HINT = "Check the network and Google's status page. Nothing is lost: what is not stored is read again."
_REFUSED = (400, 403)
"""HTTP codes whose reason is looked at."""
_PERMISSION = re.compile(r"storage\.[a-zA-Z]+\.[a-zA-Z]+")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's metadata; ``updated`` is in seconds since 1970, by Cloud Storage's clock."""

    size: int
    crc32c: str
    generation: int
    updated: float


class Bucket:
    """Objects below a prefix of a bucket, named by paths relative to it.

    Args:
        url: ``gs://bucket/prefix``, or ``gs://PROJECT@bucket/prefix`` to bill a project for requests.
        failure: the error to raise.
        unavailable: the error to raise after transient errors; None for ``failure``.
        option: the option that chose ``url``, for hints.
        endpoint: an emulator's address, or None for the environment's, if any.
        patience: seconds for which transient errors are retried.
        timeout: seconds to connect, and to wait for the next bytes.

    Raises:
        SpannerCdcError: ``failure`` or ``unavailable``, from every method, if Cloud Storage refuses or cannot be
            reached.
    """

    def __init__(
        self,
        url: str,
        *,
        failure: type[SpannerCdcError],
        unavailable: type[SpannerCdcError] | None = None,
        option: str,
        endpoint: str | None = None,
        patience: float = PATIENCE,
        timeout: tuple[float, float] = (10.0, 30.0),
    ) -> None:
        self.url = url.rstrip("/")
        self._failure = failure
        self._unavailable = unavailable or failure
        self._option = option
        self._endpoint = endpoint
        retry = Retry(predicate=DEFAULT_RETRY._predicate, timeout=patience, on_error=_noted(self.url))  # noqa: SLF001
        self._patience = {"retry": retry, "timeout": timeout}
        self._is_known = False
        try:
            self._name, self._prefix = bucket_and_prefix(url)
            self._user_project = user_project(url)
        except ValueError as error:
            raise failure(str(error)) from error

    def put(self, path: str, data: bytes | pa.Buffer, *, generation: int | None = None) -> int:
        """Uploads an object; returns its generation.

        Args:
            path: relative to the prefix.
            data: its bytes.
            generation: of the object to replace, 0 for no object, or None for whatever may be there.

        Raises:
            FileExistsError: the object has another generation.
        """
        file = pa.BufferReader(data)
        return self.upload(path, file, len(data) if isinstance(data, bytes) else data.size, generation=generation)

    def upload(self, path: str, file: BinaryIO, size: int, *, generation: int | None = None) -> int:
        """Uploads a file's bytes; see :meth:`put`. A large file is sent in chunks and appears with the last one."""
        left = _UPLOADS
        while True:
            left -= 1
            try:
                with self._translated(path):
                    return self._upload(path, file, size, generation)
            except FileNotFoundError:  # the bucket, which was there before
                raise self._failed(exceptions.NotFound(""), path) from None
            except ValueError:  # the server took a part of a chunk, and Google's library does not continue from there
                if not left:
                    why = f"cannot use {self._full(path)}: Cloud Storage accepts only a part of it"
                    raise self._unavailable(why, hint="Retry later: nothing is lost.") from None

    def _upload(self, path: str, file: BinaryIO, size: int, generation: int | None) -> int:
        blob = self._blob(path)
        blob.chunk_size = _CHUNK
        blob.upload_from_file(
            file,
            rewind=True,
            size=size,
            content_type="application/octet-stream",
            if_generation_match=generation,
            checksum="crc32c",
            **self._patience,
        )
        return int(blob.generation)

    def get(self, path: str) -> tuple[bytes, int]:
        """An object's bytes, after their checksum was compared, and its generation.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with self._translated(path):
            blob = self._blob(path)
            data: bytes = blob.download_as_bytes(checksum="crc32c", **self._patience)
            return data, int(blob.generation or 0)

    def find(self, path: str) -> StoredObject | None:
        """An object's metadata, or None if there is no such object."""
        try:
            with self._translated(path):
                blob = self._blob(path)
                blob.reload(**self._patience)
                checksum = base64.b64decode(blob.crc32c or "").hex()
                return StoredObject(int(blob.size or 0), checksum, int(blob.generation), blob.updated.timestamp())
        except FileNotFoundError:
            return None

    def names(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the objects in a folder, sorted; only those in [start, end) where given."""
        prefix = f"{self._prefix}{folder}/"
        start, end = f"{prefix}{start}" if start else "", f"{prefix}{end}" if end else ""
        found = self._listed(folder, prefix, "name", delimiter="/", start_offset=start or None, end_offset=end or None)
        names = [blob.name[len(prefix) :] for blob in found]
        return sorted(name for name in names if name)

    def walk(self, beginning: str = "") -> list[tuple[str, int, int]]:
        """The path, size and generation of every object whose path begins so, at any depth; sorted by path."""
        found = self._listed("", f"{self._prefix}{beginning}", "name,size,generation")
        return [(blob.name[len(self._prefix) :], int(blob.size or 0), int(blob.generation)) for blob in found]

    def download(self, path: str, file: BinaryIO) -> None:
        """Writes an object's bytes into a file and compares their checksum.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with self._translated(path):
            self._blob(path).download_to_file(file, checksum="crc32c", raw_download=True, **self._patience)

    def delete(self, path: str, *, generation: int | None = None) -> None:
        """Deletes an object, or only that generation of it; one that is gone already is not an error."""
        try:
            with self._translated(path):
                self._blob(path).delete(if_generation_match=generation, **self._patience)
        except (FileNotFoundError, FileExistsError):
            pass

    def missing_permissions(self) -> list[str]:
        """The required permissions that this account lacks.

        Raises:
            SpannerCdcError: there is no such bucket, or it cannot be reached.
        """
        self._check_bucket("")
        try:
            granted = self._bucket().test_iam_permissions(list(REQUIRED), **self._patience)
        except exceptions.NotFound:
            return []  # an emulator: it grants everything
        except _ERRORS as error:
            raise self._failed(error, "") from None
        return sorted(set(REQUIRED) - set(granted))

    def _listed(self, path: str, prefix: str, fields: str, **options: str | None) -> list[storage.Blob]:
        options |= {"prefix": prefix, "fields": f"items({fields}),nextPageToken"}
        with self._translated(path):
            try:
                return list(self._bucket().list_blobs(**self._patience, **options))
            except exceptions.NotFound as error:  # the bucket, which may have been there before
                raise self._failed(error, path) from None

    def _blob(self, path: str) -> storage.Blob:
        return self._bucket().blob(f"{self._prefix}{path}")

    def _bucket(self) -> storage.Bucket:
        client = _client(self._endpoint or os.environ.get(EMULATOR) or None, os.getpid())
        return client.bucket(self._name, user_project=self._user_project)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except exceptions.PreconditionFailed:
            self._works()
            raise FileExistsError(self._full(path)) from None
        except exceptions.NotFound:
            self._check_bucket(path)
            self._works()
            raise FileNotFoundError(self._full(path)) from None
        except _ERRORS as error:
            raise self._failed(error, path) from None
        self._works()

    def _works(self) -> None:
        self._is_known = True
        FAILING.healed(STORAGE, subject=self.url)

    def _check_bucket(self, path: str) -> None:
        """Raises if it is the bucket that does not exist, not only an object in it."""
        if self._is_known:
            return
        try:
            next(iter(self._bucket().list_blobs(prefix=self._prefix, max_results=1, **self._patience)), None)
        except _ERRORS as error:
            raise self._failed(error, path) from None
        self._works()

    def _full(self, path: str) -> str:
        return f"{self.url}/{path}" if path else self.url

    def _failed(self, error: BaseException, path: str) -> SpannerCdcError:
        why, hint = _refused(error) or _intercepted(error) or _why(error, self._name, self._option)
        kind = self._unavailable if _is_transient(error) else self._failure
        return kind(f"cannot use {self._full(path)}: {why}", hint=hint)


def _noted(url: str) -> Callable[[Exception], None]:
    """Notes that a call has failed with a transient error, and is retried."""

    def note(error: Exception) -> None:
        why, hint = _intercepted(error) or (_why(error, url, "")[0], _HINT)
        FAILING.failed(STORAGE, Cause(f"{why}, for {url}", "", "", hint), time.time_ns(), subject=url)

    return note


def _is_transient(error: BaseException) -> bool:
    """True if a later attempt may succeed."""
    lasting = (exceptions.RetryError, storage_exceptions.DataCorruption)
    return isinstance(error, lasting) or bool(DEFAULT_RETRY._predicate(error))  # noqa: SLF001


def _why(error: BaseException, bucket: str, option: str) -> tuple[str, str]:
    """The meaning of an exception of Google's libraries, and a hint."""
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        error = error.cause
    match error:
        case auth_exceptions.InvalidOperation():
            return "it requires Google credentials", "An emulator's address is set, and emulators get none: unset it."
        case auth_exceptions.DefaultCredentialsError() | auth_exceptions.MalformedError():
            why, hint = why_unusable()
            return why, f"{hint}; for an emulator set {EMULATOR}."
        case auth_exceptions.TransportError():
            return "Google's credentials cannot be fetched", "Check the network and run it again: nothing is lost."
        case auth_exceptions.GoogleAuthError() | exceptions.Unauthorized():
            return "the Google credentials are not accepted", "Renew them and run it again: nothing is lost."
        case exceptions.Forbidden():
            denied = _PERMISSION.search(str(error))
            return f"permission denied{f' ({denied[0]})' if denied else ''}", (
                f"Give this account roles/storage.objectUser on bucket {bucket}, or choose another with {option}."
            )
        case exceptions.NotFound():
            return f"there is no bucket {bucket}", (
                f"Create it, or choose another with {option}. If it was deleted, restore it instead: what was in it is"
                " not written again."
            )
        case exceptions.GoogleAPICallError():
            return f"Cloud Storage answers {_status(error.code)}", "Retry later: nothing is lost."
        case storage_exceptions.InvalidResponse():
            status = error.response.status_code
            return f"Cloud Storage answers {_status(status)}", "Retry later: nothing is lost."
        case storage_exceptions.DataCorruption():
            return "it was damaged in transit", "Run it again: nothing is lost."
        case requests.exceptions.InvalidURL() | requests.exceptions.MissingSchema():
            return "the endpoint is not a valid address", f"Write http://HOST:PORT in {EMULATOR} or sink.endpoint."
        case _:
            return "Cloud Storage cannot be reached", "Check the network and run it again: nothing is lost."


def _intercepted(error: BaseException) -> tuple[str, str] | None:
    """A proxy between this machine and Cloud Storage that refuses, or does not answer."""
    proxy = https_proxy(_HOST) if is_of_proxy(error) else ""
    return ("Cloud Storage cannot be reached", f"{proxy_hint(proxy)} Nothing is lost.") if proxy else None


def _refused(error: BaseException) -> Refusal | None:
    """A refusal that no role cures, also of an upload, whose error has only the response."""
    if isinstance(error, exceptions.GoogleAPICallError) and error.code in _REFUSED:
        reasons = {str(each.get("reason")) for each in error.errors if isinstance(each, dict)}
        return refusal(reasons, str(error.message or ""))
    if isinstance(error, storage_exceptions.InvalidResponse) and error.response.status_code in _REFUSED:
        return refusal((), str(getattr(error.response, "text", "")))
    return None


def _status(code: int | None) -> str:
    return f"{int(code)} {http.client.responses.get(int(code), '')}".strip() if code else "an error"


@functools.cache
def _client(endpoint: str | None, process: int) -> storage.Client:
    """This process's client: a forked child needs connections of its own."""
    assert process
    if endpoint is None:
        client = storage.Client(project=None)
    else:
        address = endpoint if "://" in endpoint else f"http://{endpoint}"
        options = {"api_endpoint": address.rstrip("/")}
        client = storage.Client(
            project=None, credentials=AnonymousCredentials(), client_options=options, _http=direct_session()
        )
    # For traces it would request the bucket's metadata, which needs another permission, and again after each 404.
    client._bucket_metadata_cache = None  # noqa: SLF001
    return client
