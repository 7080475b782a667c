"""Writes that succeed for one daemon only: a manifest is created, the header and the floor replace what was read.

They hold even where the writer's lock does not reach: on another machine, or after a lease was taken over.
"""

from connector.errors import SpoolError, SpoolInUseError
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool, manifest_path
from connector.spool.storage import store


def create_epoch(spool: Spool, manifest: Manifest) -> int:
    """Makes the manifest's epoch exist, durably; its files and schemas must exist already.

    Returns:
        The bytes of the manifest's file.

    Raises:
        SpoolInUseError: another daemon has sealed this epoch.
        SpoolError: the disk refuses; the epoch does not exist then.
    """
    data = manifest.to_json()
    path = manifest_path(manifest.epoch)
    try:
        spool.storage.create(path, data)
    except FileExistsError:
        # It may be this daemon's own, if the first answer was lost; anything else is another daemon's.
        if spool.storage.read(path).to_pybytes() != data:
            raise _sealed_by_another(spool, manifest.epoch) from None
    except SpoolError as error:
        # Another daemon that has sealed the epoch has swept this one's unfinished file.
        if spool.storage.exists(path) and spool.storage.read(path).to_pybytes() != data:
            raise _sealed_by_another(spool, manifest.epoch) from error
        raise
    if spool.floor() > manifest.epoch:
        spool.storage.delete(path)
        raise written_by_another(spool)
    return len(data)


def update(spool: Spool, path: str, before: bytes | None, data: bytes) -> None:
    """Writes a file of the spool in place of one with the bytes ``before``, or of none.

    Raises:
        SpoolInUseError: another daemon has written it meanwhile.
    """
    try:
        store.update(spool.storage, path, before, data)
    except FileExistsError:
        raise written_by_another(spool) from None


def _sealed_by_another(spool: Spool, epoch: int) -> SpoolInUseError:
    return SpoolInUseError(
        f"another daemon has sealed epoch {epoch} of the spool at {spool.path}",
        hint="Only one may write a spool: stop the other, or choose another spool.path.",
    )


def written_by_another(spool: Spool) -> SpoolInUseError:
    """The error for a daemon that finds that another one writes its spool."""
    return SpoolInUseError(
        f"another daemon has written the spool at {spool.path} meanwhile",
        hint="Only one may write a spool: stop the other, or choose another spool.path.",
    )
