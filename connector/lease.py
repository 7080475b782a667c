"""A lock in object storage: an object that says who holds it, renewed while it is held.

It does what a file's lock does on a disk: it keeps a second daemon, or a second query of one consumer's name, from
starting. It cannot do more, for a process that was paused may wake up after its lease was taken over; what must hold
even then is held by the guards on what is written, above all on manifests, which are created and never overwritten.

A lease whose holder is known to be gone is free: it ran on this machine and is no process any more. Any other is free
once it was not renewed for :data:`LEASE` seconds, by Cloud Storage's clock and ours. Whoever finds it taken over
refuses to write from then on.
"""

import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from connector.bucket import Bucket
from connector.errors import SpannerCdcError, SpoolInUseError

LEASE = 20.0
"""Seconds after which a lease that is not renewed is free; clocks may differ by the better part of it."""

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
        self._lost = ""
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
            SpoolInUseError: another process has taken it over.
        """
        if self._lost:
            raise SpoolInUseError(f"{self._taken} ({self._lost}), which took over while this one was not heard of")

    def _take_over(self) -> int:
        try:
            data, generation = self._bucket.get(self._path)
            found = self._bucket.find(self._path)
        except FileNotFoundError:
            found = None
        if found is None or found.generation != generation:
            raise SpoolInUseError(f"{self._taken} (it was taken or given back just now)")
        holder = Holder.of(data)
        if holder == self._holder:  # the answer to our own was lost
            return generation
        left = found.updated + LEASE - time.time()
        if holder is not None and not holder.is_gone() and left > 0:
            raise SpoolInUseError(f"{self._taken} ({holder}; unless it is renewed its lease ends in {left:.0f} s)")
        try:
            return self._bucket.put(self._path, self._holder.to_json(), generation=generation)
        except FileExistsError:
            raise SpoolInUseError(f"{self._taken} (another process was faster)") from None

    def _keep(self) -> None:
        while not self._done.wait(RENEWAL):
            try:
                self._renew()
            except SpannerCdcError:
                continue  # the network is cut: next time
            if self._lost:
                return

    def _renew(self) -> None:
        try:
            self._generation = self._bucket.put(self._path, self._holder.to_json(), generation=self._generation)
        except FileExistsError:
            try:
                data, generation = self._bucket.get(self._path)
            except FileNotFoundError:
                self._lost = "nobody: its object was deleted"
                return
            holder = Holder.of(data)
            if holder == self._holder:
                self._generation = generation
            else:
                self._lost = str(holder)


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
