"""A lease: a lock in object storage. It is an object that names its holder, and it is renewed while it is held.

It keeps a second daemon, or a second query of the same consumer, from starting, as a file lock does on a disk. It
cannot do more: a process that was paused may continue after its lease was taken over. What must hold even then is
ensured by the preconditions of the writes, above all of manifests, which are created and never overwritten.

A lease is free if its holder ran on this machine and has ended. Any other lease is free once it has not been renewed
for :data:`LEASE` seconds, by Cloud Storage's clock alone. A holder that finds its lease taken over, or cannot renew it
because of an error of its own, refuses to write from then on. One that has not renewed it for so long, because the
network was down or the process was paused, renews it before it writes.
"""

import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import orjson

from connector.errors import SpannerCdcError, SpoolInUseError, TakenOverError
from connector.spool.storage.bucket import Bucket

LEASE = 20.0
"""Seconds without a renewal after which a lease is free."""

RENEWAL = 5.0
"""Seconds between two renewals."""

_PAUSE = 0.5
"""Seconds between two attempts of a write to renew a lease that may be lost."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A process that holds a lease.

    ``machine`` names this boot of the kernel and is empty if the system has no name for it; ``nonce`` is random.
    """

    host: str
    machine: str
    process: int
    started: str
    nonce: str

    @classmethod
    def this_process(cls) -> "LeaseHolder":
        """This process, with another nonce each time."""
        return cls(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()), secrets.token_hex(8))

    @classmethod
    def of(cls, data: bytes) -> "LeaseHolder | None":
        """The holder that an object names, or None if it is not a valid lease."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError:
            return None

    def to_json(self) -> bytes:
        """The bytes of the lease's object."""
        return orjson.dumps({"version": 1, **asdict(self)}, option=orjson.OPT_INDENT_2)

    def is_gone(self) -> bool:
        """True if the process is known to have ended, which is only possible if it ran on this machine."""
        return bool(self.machine) and self.machine == _machine() and _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """A lease of this process.

    Args:
        bucket: the bucket of its object.
        path: its object's path.
        taken: the message if another process holds it.
        patience: seconds for which a renewal that is due before a write is tried again.
    """

    def __init__(self, bucket: Bucket, path: str, taken: str, *, patience: float) -> None:
        self._bucket = bucket
        self._path = path
        self._taken = taken
        self._holder = LeaseHolder.this_process()
        self._patience = patience
        self._generation = 0
        self._renewed_at = -LEASE
        self._renewing = threading.Lock()
        self._lost: SpoolInUseError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_done, name=f"lease {path}", daemon=True)

    def take(self) -> None:
        """Takes the lease and starts renewing it.

        Raises:
            SpoolInUseError: another process holds it.
        """
        since = _clock()
        try:
            self._generation = self._bucket.put(self._path, self._holder.to_json(), generation=0)
        except FileExistsError:
            self._generation = self._take_over()
        self._renewed_at = since
        self._thread.start()

    def release(self) -> None:
        """Stops renewing the lease and deletes its object."""
        self._done.set()
        self._thread.join()
        if not self._lost:
            with suppress(SpannerCdcError):  # it expires by itself
                self._bucket.delete(self._path, generation=self._generation)

    def check(self) -> None:
        """Raises if the lease was lost; renews it if it may have been, because that was not done in time.

        Raises:
            SpoolInUseError: another process has taken it over, or it cannot be renewed.
            SpannerCdcError: Cloud Storage cannot be reached, and the lease may be lost.
        """
        deadline = time.monotonic() + self._patience
        while not self._lost and _clock() - self._renewed_at > LEASE:
            try:
                self._renew()
            except SpannerCdcError:
                if time.monotonic() >= deadline:
                    raise
                self._done.wait(_PAUSE)
        if self._lost:
            raise self._lost

    def _take_over(self) -> int:
        holder, generation = self._read()
        found = self._bucket.find(self._path)
        if found is None or found.generation != generation:
            raise SpoolInUseError(f"{self._taken} (it was taken or released just now)")
        if holder == self._holder:  # this process's own write, whose answer was lost
            return generation
        if holder is not None and not holder.is_gone():
            left = found.updated + LEASE - self._now()
            if left > 0:
                raise SpoolInUseError(f"{self._taken} ({holder}; unless it is renewed its lease ends in {left:.0f} s)")
        try:
            return self._bucket.put(self._path, self._holder.to_json(), generation=generation)
        except FileExistsError:
            holder, generation = self._read()
            if holder == self._holder:
                return generation
            raise SpoolInUseError(f"{self._taken} (another process was faster)") from None

    def _renew_until_done(self) -> None:
        try:
            while not self._lost and not self._done.wait(RENEWAL):
                with suppress(SpannerCdcError):  # the network is down: at the next renewal
                    self._renew()
        except BaseException as error:  # noqa: BLE001 - whatever it is, check() raises it
            path = f"{self._bucket.url}/{self._path}"
            self._lost = SpoolInUseError(f"the lock {path} could not be renewed: {type(error).__name__}")

    def _renew(self) -> None:
        with self._renewing:
            since = _clock()
            try:
                self._generation = self._bucket.put(self._path, self._holder.to_json(), generation=self._generation)
                self._renewed_at = since
            except FileExistsError:
                holder, generation = self._read()
                if holder == self._holder:
                    self._generation = generation
                elif generation:
                    by = f"({holder or 'unknown'}), which took over while this one did not renew it"
                    self._lost = TakenOverError(f"{self._taken} {by}")
                else:
                    self._lost = SpoolInUseError(f"the lock {self._bucket.url}/{self._path} was deleted")

    def _read(self) -> tuple[LeaseHolder | None, int]:
        """The holder, if the object names one, and the object's generation: 0 if there is no object."""
        try:
            data, generation = self._bucket.get(self._path)
        except FileNotFoundError:
            return None, 0
        return LeaseHolder.of(data), generation

    def _now(self) -> float:
        """The time by Cloud Storage's clock, from a new object's metadata: this machine's clock may be wrong."""
        path = f"{self._path}.{self._holder.nonce}"
        self._bucket.put(path, b"")
        found = self._bucket.find(path)
        self._bucket.delete(path)
        return found.updated if found else 0.0


def _clock() -> float:
    """Seconds that also pass while the machine is suspended, where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _machine() -> str:
    """This boot of this kernel and this namespace of processes; empty if the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """The kernel's start time of a process; empty if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
