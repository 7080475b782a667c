"""The cuts of epochs: a small cut is part of the manifest, a large one has a file of its own.

A manifest is written every second, and a cut of 5,000 partitions takes a megabyte. So a cut of more than
:data:`INLINE` partitions is written into ``cuts/``, durably and before the first manifest that refers to it. The
manifests name that file, its size and its checksum, and hold only the partitions that were added and removed since.
Once those differences have taken as many bytes as the file, the next manifest has a new file. A file is never changed.
"""

from collections.abc import Iterable, Mapping

import orjson

from connector.core.records import function_of, partition_id, token_of
from connector.core.timestamps import format_rfc3339, parse
from connector.spool.manifest import (
    FUNCTIONS_VERSION,
    VERSION,
    CutFile,
    CutToken,
    Manifest,
    RemovedPartition,
    corrupt,
    crc32c,
    load_document,
)
from connector.spool.storage.store import FileReader, FileStore

INLINE = 64
"""Partitions up to which a cut is part of the manifest, where older programs can read it."""

_ENTRY = 70
"""Bytes that an entry takes beside its token, about."""


class CutWriter:
    """Places the cuts of one writer's epochs.

    Args:
        storage: the spool's file store.
        writer: the writer's id, which is part of its files' names.
    """

    def __init__(self, storage: FileStore, writer: str) -> None:
        self._storage = storage
        self._writer = writer
        self._file: CutFile | None = None
        self._held: Mapping[str, int] = {}
        self._spent = 0

    def placed(self, epoch: int, starts: Mapping[str, int]) -> tuple[tuple[CutToken, ...], CutFile | None]:
        """The cut as an epoch's manifest holds it: the tokens, or the reference to a file, which is durable by then.

        Args:
            epoch: its number.
            starts: the start timestamp of each partition of the cut, by its id, in order.

        Raises:
            SpoolError: the disk refuses.
        """
        if len(starts) <= INLINE:
            self._file = None
            return _tokens(starts), None
        if self._file is not None:
            added, removed = dict(starts.items() - self._held.items()), self._held.keys() - starts.keys()
            self._spent += sum(len(token) + _ENTRY for token in (*added, *removed))
            if self._spent <= self._file.bytes:
                changes = {"added": _tokens(added), "removed": tuple(map(_removed, sorted(removed)))}
                return (), self._file.model_copy(update=changes)
        self._file, self._held, self._spent = self._write(epoch, starts), starts, 0
        return (), self._file

    def _write(self, epoch: int, starts: Mapping[str, int]) -> CutFile:
        ordered = sorted(starts.items(), key=_in_order)
        tokens = [
            {"token": token_of(one), "start_timestamp": format_rfc3339(start), **_named(function_of(one))}
            for one, start in ordered
        ]
        data = orjson.dumps({"version": version_of(starts), "cut": tokens})
        path = cut_path(epoch, self._writer)
        self._storage.replace(path, data)
        return CutFile(path=path, bytes=len(data), crc32c=crc32c(data), added=(), removed=())


def version_of(partitions: Iterable[str]) -> int:
    """The version of a document that names these partitions, by their ids."""
    return FUNCTIONS_VERSION if any(function_of(one) is not None for one in partitions) else VERSION


def _named(function: str | None) -> dict[str, str]:
    return {} if function is None else {"function": function}


def _removed(partition: str) -> str | RemovedPartition:
    function = function_of(partition)
    return token_of(partition) if function is None else RemovedPartition(token=token_of(partition), function=function)


def cut_path(epoch: int, writer: str) -> str:
    """The path of a writer's file for the cut after an epoch."""
    return f"cuts/{epoch:020d}-{writer}.json"


def read_cut(storage: FileReader, manifest: Manifest) -> tuple[CutToken, ...]:
    """The cut of an epoch, from its manifest or its file; from a file it is sorted by start timestamp.

    Raises:
        SpoolError: its file is missing, corrupt or of a newer version.
    """
    file = manifest.cut_file
    if file is None:
        return manifest.cut
    starts = _read(storage, file)
    for token in file.removed_ids:
        if starts.pop(token, None) is None:
            raise corrupt(storage.full(file.path), f"a partition that epoch {manifest.epoch} removes is not in it")
    starts.update((at.id, at.start_timestamp) for at in file.added)
    return _tokens(dict(sorted(starts.items(), key=_in_order)))


def _read(storage: FileReader, file: CutFile) -> dict[str, int]:
    path = storage.full(file.path)
    try:
        data = storage.read(file.path).to_pybytes()
    except FileNotFoundError as error:
        raise corrupt(path, "it is missing") from error
    if len(data) != file.bytes or crc32c(data) != file.crc32c:
        raise corrupt(path, "its checksum does not match")
    node = load_document(data, path, FUNCTIONS_VERSION)
    try:
        tokens = node["cut"]
        assert isinstance(tokens, list)
        return {partition_id(at["token"], at.get("function")): parse(at["start_timestamp"]) for at in tokens}
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise corrupt(path, "it is not a valid cut") from error


def _in_order(at: tuple[str, int]) -> tuple[int, str]:
    token, start = at
    return start, token


def _tokens(starts: Mapping[str, int]) -> tuple[CutToken, ...]:
    return tuple(CutToken.of(one, start) for one, start in starts.items())
