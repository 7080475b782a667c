"""Consumers of a spool: who reads it, and up to which epoch. Epochs that all have passed may be pruned.

A consumer registers before it chooses its start, so that nothing it is about to read is pruned in between. Each
consumer name has one query: a lock, which is freed when its process ends, refuses a second one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pydantic import Field

from connector.errors import SpoolError
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json

DEFAULT = "default"
"""The consumer that a query of Spark's is, unless it names another."""

STARTED, DESTINATION, REPORT, KEPT, START, MADE = ".begun", ".destination", ".report", ".kept", ".start", ".tables"
MINUTES, EQUAL, MAINTENANCE = ".minutes", ".equal", ".maintenance"
PACE, RELEASED, LOADED = ".pace", ".released", ".loaded"
"""The endings of what a sink keeps beside its consumer's record; not .json, which would be a consumer."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Consumer(Document):
    """A consumer and the last epoch it is done with; ``updated`` is when it last recorded that.

    ``at`` is that epoch's :attr:`connector.spool.manifest.Manifest.identity`; empty if it is not known.
    """

    consumer: str
    epoch: int = Field(ge=0)
    updated: Timestamp
    at: str = Field(default="", pattern=r"^$|^\d{4}-\d\d-\d\dT[\d:.]+Z/.+$")


def checked_name(name: str) -> str:
    """The name, if it may name a consumer.

    Raises:
        SpoolError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise SpoolError(f"consumer {name!r}: a name has up to 100 letters, digits, dots, dashes or underscores")
    return name


def sink_lock(name: str) -> str:
    """The lock in the spool that the one process of a sink holds."""
    return f"consumers/{name}.sink.lock"


def replay_lock(name: str) -> str:
    """The lock of a replay of dead letters, in the change stream's spool; a backfill takes it at its start."""
    return f"consumers/{name}.replay.lock"


def consumers(spool: Spool, files: Iterable[str] | None = None) -> list[Consumer]:
    """Every registered consumer, by name; ``files`` are those of the folder, or None to list them."""
    found = spool.storage.list("consumers") if files is None else files
    names = [name[:-5] for name in found if name.endswith(".json")]
    return [consumer for name in names if (consumer := find(spool, name)) is not None]


def find(spool: Spool, name: str) -> Consumer | None:
    """The consumer of that name, or None."""
    return spool.find(_path(name), Consumer, "it has no valid epoch")


def done(spool: Spool, name: str) -> int:
    """The last epoch that a consumer is done with; 0 if there is no such consumer."""
    known = find(spool, name)
    return known.epoch if known else 0


def register(spool: Spool, name: str, *, now: int) -> Consumer:
    """The consumer of that name, registered at the oldest epoch that is kept if it is new."""
    known = find(spool, checked_name(name))
    if known is not None:
        return known
    # Before the floor is read a second time nothing can be pruned past this consumer.
    record(spool, name, spool.floor() - 1, now=now)
    return record(spool, name, spool.floor() - 1, now=now)


def record(spool: Spool, name: str, epoch: int, *, now: int, at: str = "") -> Consumer:
    """The consumer is done with everything up to ``epoch``, whose identity is ``at``."""
    consumer = Consumer(consumer=checked_name(name), epoch=epoch, updated=now, at=at)
    spool.storage.replace(_path(name), to_json(consumer))
    return consumer


def is_recorded(spool: Spool, name: str) -> bool:
    """True if a spool has a record of a consumer.

    A sink that ended before its first epoch is no consumer, but may have recorded something, such as its failure.
    """
    return find(spool, checked_name(name)) is not None or any(map(spool.storage.exists, _records(name)))


def forget(spool: Spool, name: str) -> None:
    """Removes a consumer, so that it no longer keeps epochs from being pruned, and all records of a sink.

    Those in the spools of backfills stay: :func:`connector.spool.backfill.forgetting.forget_everywhere`.

    Raises:
        SpoolError: there is no such consumer.
    """
    if not is_recorded(spool, name):
        known = ", ".join(consumer.consumer for consumer in consumers(spool)) or "none"
        raise SpoolError(f"the spool at {spool.path} has no consumer {name!r}", hint=f"Registered: {known}.")
    spool.storage.delete(_path(name), *_records(name))


def withdraw(spool: Spool, name: str) -> None:
    """Removes the record of a consumer that has not read anything, so that it can be registered elsewhere."""
    spool.storage.delete(_path(name))


def is_stray(consumer: Consumer, newest: int, identity: str) -> bool:
    """True if the epoch that a consumer is done with is of another copy of the spool. Pure.

    Args:
        consumer: the consumer.
        newest: the spool's newest epoch, found after the consumer.
        identity: that of the spool's epoch of that number; empty if it is not known, because it is pruned.
    """
    return consumer.epoch > newest or (identity != "" and consumer.at not in ("", identity))


@contextmanager
def claimed(spool: Spool, name: str) -> Iterator[Callable[[], None]]:
    """Holds the consumer's name for this process; yields a check that raises SpoolInUseError once it is held no more.

    Raises:
        SpoolInUseError: another query uses it.
    """
    taken = f"consumer {checked_name(name)!r} of the spool at {spool.path} is in use by another query"
    with spool.storage.locked(f"consumers/{name}.lock", taken) as check:
        yield check


def _path(name: str) -> str:
    return f"consumers/{name}.json"


def _records(name: str) -> list[str]:
    """The paths of what a sink keeps beside its consumer's record."""
    endings = (STARTED, DESTINATION, REPORT, KEPT, START, MADE, MINUTES, EQUAL, MAINTENANCE, PACE, RELEASED, LOADED)
    return [f"consumers/{name}{ending}" for ending in endings]
