"""The file store in Cloud Storage (:class:`connector.spool.storage.store.FileStore`).

A file is created with a precondition for generation 0, and replaced with one for the generation that was read. Object
storage has no file locks: see :mod:`connector.spool.storage.lease`. Nothing is ever half written, so nothing is to be
swept.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from tempfile import TemporaryFile
from typing import BinaryIO

import google_crc32c
import pyarrow as pa

from connector.errors import SpannerCdcError
from connector.spool.storage.bucket import PATIENCE, Bucket
from connector.spool.storage.gcs_files import GcsFile, Scratch
from connector.spool.storage.lease import LEASE, RENEWAL, Lease
from connector.spool.storage.store import StoredFile

_PARALLEL = 16
"""Requests in flight where there are many to make: each takes some 50 ms."""


class GcsStore:
    """Reads and writes objects below ``gs://bucket/prefix``; see :class:`connector.spool.storage.store.FileStore`.

    Args:
        url: ``gs://bucket/prefix``.
        failure: the error to raise if Cloud Storage refuses or cannot be reached.
        unavailable: the error to raise after transient errors; None for ``failure``.
        option: the option that chose ``url``, for hints.
        endpoint: an emulator's address; empty for the environment's, if any.
        patience: seconds for which transient errors are retried.

    Raises:
        SpoolInUseError: from every method that writes, once a lock that was held here was taken over.
    """

    rewrite_interval = 1.0
    poll_interval = 0.1
    takeover = LEASE + RENEWAL

    def __init__(
        self,
        url: str,
        *,
        failure: type[SpannerCdcError],
        unavailable: type[SpannerCdcError] | None = None,
        option: str,
        endpoint: str = "",
        patience: float = PATIENCE,
    ) -> None:
        bucket = partial(
            Bucket, url, failure=failure, unavailable=unavailable, option=option, endpoint=endpoint or None
        )
        self._bucket = bucket(patience=patience)
        self._patience = patience
        self._leases = bucket(patience=min(patience, 2 * RENEWAL), timeout=(RENEWAL, 2 * RENEWAL))
        self._failure = failure
        self._scratch = Scratch(failure)
        self._held: list[Lease] = []

    def full(self, path: str = "") -> str:
        """The URL of a file; of the root without ``path``."""
        return f"{self._bucket.url}/{path}" if path else self._bucket.url

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file, in memory."""
        return pa.py_buffer(self._bucket.get(path)[0])

    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """The bytes of files in turn, several of them in flight at a time."""
        in_flight: deque[Future[pa.Buffer]] = deque()
        pool = ThreadPoolExecutor(_PARALLEL, "gcs-read")
        try:
            for path in paths:
                in_flight.append(pool.submit(self.read, path))
                if len(in_flight) == _PARALLEL:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def read_version(self, path: str) -> tuple[bytes, str]:
        """The bytes of a file and its generation."""
        data, generation = self._bucket.get(path)
        return data, str(generation)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A file as a stream, downloaded into a temporary file without a name, which the system frees."""
        with TemporaryFile() as stream:
            self._bucket.download(path, stream)
            stream.seek(0)
            yield stream

    def exists(self, path: str) -> bool:
        """True if there is such a file."""
        return self._bucket.find(path) is not None

    def find(self, path: str) -> StoredFile | None:
        """A file's size and generation; None if there is no such file."""
        found = self._bucket.find(path)
        return None if found is None else StoredFile(path, found.size, str(found.generation))

    def list(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the files in a folder, sorted; one request for each 1,000 names."""
        return self._bucket.names(folder, start, end)

    def walk(self, beginning: str = "") -> Sequence[StoredFile]:
        """Every file at any depth whose path begins with ``beginning``, sorted by path."""
        return [
            StoredFile(path, size, str(generation))
            for path, size, generation in self._bucket.walk(beginning)
            if not path.endswith("/")  # which stands for a folder
        ]

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Uploads a new object."""
        self._check()
        self._bucket.put(path, data, generation=0)

    def replace(self, path: str, data: bytes | pa.Buffer, *, version: str | None = None) -> None:
        """Uploads an object in place of that generation, or of whatever may be there."""
        self._check()
        self._bucket.put(path, data, generation=None if version is None else int(version))

    def put(self, path: str, data: bytes) -> None:
        """Uploads an object unless it is there with these bytes, by its checksum."""
        self._check()
        found = self._bucket.find(path)
        checksum = google_crc32c.value(data)
        if found is None or (found.size, found.crc32c) != (len(data), f"{checksum:08x}"):
            self._bucket.put(path, data)

    def begin(self, path: str) -> GcsFile:
        """Starts a file on this machine; a writer that was killed has left nothing behind."""
        return GcsFile(self._bucket, self._scratch, path, self._failure)

    def make_folder(self, path: str) -> None:
        """Creates the object that stands for a folder, without which Dataflow's reader does not find the files."""
        self._check()
        with suppress(FileExistsError):
            self._bucket.put(f"{path}/", b"", generation=0)

    def delete(self, *paths: str) -> None:
        """Deletes files; one that is gone already is not an error."""
        self._check()
        if len(paths) == 1:
            self._bucket.delete(paths[0])
            return
        with ThreadPoolExecutor(_PARALLEL, "gcs-delete") as pool:
            for _ in pool.map(self._bucket.delete, paths):
                pass

    def delete_version(self, path: str, version: str) -> bool:
        """Deletes that generation of a file; returns whether there is no such file any more."""
        self._check()
        self._bucket.delete(path, generation=int(version))
        return self._bucket.find(path) is None

    def sweep(self, folder: str) -> None:
        """Nothing: an upload that broke off leaves nothing behind."""
        assert folder

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[Callable[[], None]]:
        """Holds a lease, which is freed when the process ends: at once, or some seconds after it was killed."""
        lease = Lease(self._leases, path, taken, patience=self._patience)
        lease.take()
        self._held.append(lease)
        try:
            yield lease.check
        finally:
            self._held.remove(lease)
            lease.release()

    def _check(self) -> None:
        for lease in self._held:
            lease.check()
