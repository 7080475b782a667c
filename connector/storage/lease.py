"""A lock in object storage: an object that says who holds it, renewed while it is held.

It does what a file's lock does on a disk: it keeps a second daemon, or a second query of one consumer's name, from
starting. It cannot do more, for a process that was paused may wake up after its lease was taken over; what must hold
even then is held by the guards on what is written, above all on manifests, which are created and never overwritten.

A lease whose holder is known to be gone is free: it ran on this machine and is no process any more. Any other is free
once it was not renewed for :data:`LEASE` seconds, by Cloud Storage's clock alone. Whoever finds it taken over, or
cannot renew it for a fault of its own, refuses to write from then on.
"""

import os
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from connector.errors import SpannerCdcError, SpoolInUseError, TakenOverError
from connector.storage.bucket import Bucket

LEASE = 20.0
"""Seconds after which a lease that is not renewed is free."""

RENEWAL = 5.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lease; ``machine`` is empty where the system has no name for it."""

    host: str
    machine: str
    process: int
    started: str
    nonce: str

    @classmethod
    def this_process(cls) -> "Holder":
        """This process, once more each time."""
        return cls(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()), secrets.token_hex(8))

    @classmethod
    def of(cls, data: bytes) -> "Holder | None":
        """Who an object names, or None where it names nobody."""
        try:
            node = orjson.loads(data)
            return cls(node["host"], node["machine"], int(node["process"]), node["started"], node["nonce"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> bytes:
        """The lease's object."""
        return orjson.dumps({"version": 1, **asdict(self)}, option=orjson.OPT_INDENT_2)

    def is_gone(self) -> bool:
        """Whether the process is known to have ended: it ran where this one runs."""
        return bool(self.machine) and self.machine == _machine() and _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """A lease of this process; take it, and give it back.

    Args:
        bucket: where it lies.
        path: its object.
        taken: the message where another holds it.
    """

    def __init__(self, bucket: Bucket, path: str, taken: str) -> None:
        self._bucket = bucket
        self._path = path
        self._taken = taken
        self._holder = Holder.this_process()
        self._generation = 0
        self._lost: SpoolInUseError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {path}", daemon=True)

    def take(self) -> None:
        """Takes it, and renews it from then on.

        Raises:
            SpoolInUseError: another process holds it.
        """
        try:
            self._generation = self._bucket.put(self._path, self._holder.to_json(), generation=0)
        except FileExistsError:
            self._generation = self._take_over()
        self._thread.start()

    def give_back(self) -> None:
        """Frees it."""
        self._done.set()
        self._thread.join()
        if not self._lost:
            with suppress(SpannerCdcError):  # it frees itself
                self._bucket.delete(self._path, generation=self._generation)

    def check(self) -> None:
        """Refuses to go on without it.

        Raises:
            SpoolInUseError: another process has taken it over, or it is not renewed any more.
        """
        if self._lost:
            raise self._lost

    def _take_over(self) -> int:
        holder, generation = self._read()
        found = self._bucket.find(self._path)
        if found is None or found.generation != generation:
            raise SpoolInUseError(f"{self._taken} (it was taken or given back just now)")
        if holder == self._holder:  # the answer to our own was lost
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

    def _keep(self) -> None:
        try:
            while not self._lost and not self._done.wait(RENEWAL):
                with suppress(SpannerCdcError):  # the network is cut: next time
                    self._renew()
        except BaseException as error:  # noqa: BLE001 - whatever it is, check tells of it
            path = f"{self._bucket.url}/{self._path}"
            self._lost = SpoolInUseError(f"the lock {path} could not be renewed: {type(error).__name__}")

    def _renew(self) -> None:
        try:
            self._generation = self._bucket.put(self._path, self._holder.to_json(), generation=self._generation)
        except FileExistsError:
            holder, generation = self._read()
            if holder == self._holder:
                self._generation = generation
            elif generation:
                other = f"({holder or 'unknown'})"
                self._lost = TakenOverError(f"{self._taken} {other}, which took over while this one was not heard of")
            else:
                self._lost = SpoolInUseError(f"the lock {self._bucket.url}/{self._path} was deleted")

    def _read(self) -> tuple[Holder | None, int]:
        """Who holds it, if its object says so, and that object's generation: 0 where there is none."""
        try:
            data, generation = self._bucket.get(self._path)
        except FileNotFoundError:
            return None, 0
        return Holder.of(data), generation

    def _now(self) -> float:
        """The time by Cloud Storage's clock, which dates the leases; ours may be wrong. An object of ours tells it."""
        path = f"{self._path}.{self._holder.nonce}"
        self._bucket.put(path, b"")
        found = self._bucket.find(path)
        self._bucket.delete(path)
        return found.updated if found else 0.0


def _machine() -> str:
    """This boot of this kernel and this namespace of processes; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """When a process began, as the kernel counts; empty if there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
