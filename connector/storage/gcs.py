"""A spool's files in Cloud Storage: the contract of :class:`connector.storage.local.LocalStorage`, kept by other means.

A manifest is created with a guard for generation 0, and what is updated has one for the generation that was read.
There is no file's lock: see :mod:`connector.storage.lease`. Nothing is ever half written, so there is nothing to sweep.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from connector.errors import SpoolError
from connector.storage.bucket import PATIENCE, Bucket
from connector.storage.lease import LEASE, RENEWAL, Lease

_AT_ONCE = 16
"""Requests under way where there are many to make: each takes some 50 ms, whatever it asks."""


class GcsStorage:
    """Objects below ``gs://bucket/prefix``, named by relative paths with forward slashes.

    Args:
        url: ``gs://bucket/prefix``.
        patience: seconds for which what may pass by itself is retried.

    Raises:
        SpoolError: from every method, where Cloud Storage refuses or cannot be reached, with the path.
        SpoolInUseError: from every method that writes, once a lock that was held here was taken over.
    """

    rewrite_interval = 1.0
    poll_interval = 0.1
    takeover = LEASE + RENEWAL

    def __init__(self, url: str, *, patience: float = PATIENCE) -> None:
        self._bucket = Bucket(url, failure=SpoolError, option="spool.path", patience=patience)
        self._leases = Bucket(url, failure=SpoolError, option="spool.path", patience=min(patience, 2 * RENEWAL))
        self._held: list[Lease] = []

    def full(self, path: str = "") -> str:
        """A file's URL; without a path, the folder's."""
        return f"{self._bucket.url}/{path}" if path else self._bucket.url

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a new file, whole and durable.

        Raises:
            FileExistsError: there is one already, perhaps our own whose answer was lost; it is left as it is.
        """
        self._check()
        self._bucket.put(path, data, generation=0)

    def replace(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a file, in place of the one that may be there; readers see the one or the other."""
        self._check()
        self._bucket.put(path, data)

    def update(self, path: str, before: bytes | None, data: bytes) -> None:
        """Writes a file in place of one with the bytes ``before``, or of none, guarded by its generation.

        Raises:
            FileExistsError: something else is there, or nothing any more; it is left as it is.
        """
        self._check()
        held, generation = self._found(path)
        if held != before:
            raise FileExistsError(self.full(path))
        try:
            self._bucket.put(path, data, generation=generation)
        except FileExistsError:
            if self._found(path)[0] != data:  # else it is our own, whose answer was lost
                raise

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file, in memory.

        Raises:
            FileNotFoundError: there is none.
        """
        return pa.py_buffer(self._bucket.get(path)[0])

    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """The bytes of files in turn, several on their way at a time; see :meth:`read`."""
        under_way: deque[Future[pa.Buffer]] = deque()
        pool = ThreadPoolExecutor(_AT_ONCE, "gcs-read")
        try:
            for path in paths:
                under_way.append(pool.submit(self.read, path))
                if len(under_way) == _AT_ONCE:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return self._bucket.find(path) is not None

    def list(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the files in a folder, sorted, in [start, end) where given; a request for 1,000 names."""
        return self._bucket.names(folder, start, end)

    def delete(self, *paths: str) -> None:
        """Deletes files; one that is gone already is no error."""
        self._check()
        if len(paths) == 1:
            self._bucket.delete(paths[0])
            return
        with ThreadPoolExecutor(_AT_ONCE, "gcs-delete") as pool:
            for _ in pool.map(self._bucket.delete, paths):
                pass

    def sweep(self, folder: str) -> None:
        """Nothing: an upload that broke off leaves nothing behind in a folder."""
        assert folder

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[Callable[[], None]]:
        """Holds a lease, which is free when the process ends: at once, or some seconds after it was killed.

        Gives what raises SpoolInUseError once it was lost, for those who do not write here.

        Raises:
            SpoolInUseError: another process holds it; the message is ``taken`` and who that is.
        """
        lease = Lease(self._leases, path, taken)
        lease.take()
        self._held.append(lease)
        try:
            yield lease.check
        finally:
            self._held.remove(lease)
            lease.give_back()

    def _found(self, path: str) -> tuple[bytes | None, int]:
        try:
            return self._bucket.get(path)
        except FileNotFoundError:
            return None, 0

    def _check(self) -> None:
        for lease in self._held:
            lease.check()
