"""Spark's checkpoint of a configuration's sink, compared with the spool that the configuration names.

An offset in it names the spool and the epoch up to which all is done. Over another spool the sink would skip the epochs
up to that number, or deliver them again, so the query refuses it when it starts
(:mod:`spark_sink.sources.changes.epoch_stream`). Here it is found before anything starts.
"""

from contextlib import suppress

import msgspec

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.errors import ConfigurationError, SpoolError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute, in_cloud_storage
from connector.spool.storage.opening import open_store

_FOLDER = "offsets"
"""Spark's folder with a file for each micro-batch, named by its number."""

_NO_OFFSET = b"-"
_LINES_BEFORE_OFFSETS = 2
"""The version, and Spark's own metadata."""


class _Offset(msgspec.Struct, frozen=True):
    """The fields of an offset (:class:`spark_sink.sources.changes.offsets.Offset`) that are compared."""

    epoch: int
    spool: str = ""
    at: str = ""


def sink_checkpoint(config: Config) -> str:
    """The folder of Spark's checkpoint of the configuration's sink."""
    root, sink = absolute(config.spark.checkpoint), config.sink
    if not sink.has_default_name:
        return f"{root}/sinks/{sink.name}"
    return root if sink_type(sink.type).checkpoint_is_the_root else f"{root}/{sink.name}"


def check_checkpoint(config: Config, *, of_copies: bool = False) -> None:
    """Checks that Spark's checkpoint, which need not exist, is of the configuration's spool.

    Args:
        config: the configuration.
        of_copies: whether it must not be of another copy of the spool either, which was put back from an older one. The
            sink's query finds that, too, and knows what would be read twice or be missing: ``run`` leaves it to that.

    Raises:
        ConfigurationError: it is of another spool or copy.
        SpoolError: the spool cannot be read.
    """
    folder = sink_checkpoint(config)
    offset = _newest_offset(config, folder)
    if offset is None or not offset.spool:
        return
    spool = Spool.at(config.spool.path)
    if found := _contradiction(spool, offset):
        line = (
            f"spark.checkpoint: {folder} is of spool {offset.spool}, up to its epoch {offset.epoch}, but {found}. Put"
            " that spool back, or remove the checkpoint: the sink then delivers all that this spool has not recorded as"
            " delivered"
        )
        raise ConfigurationError([line])
    if of_copies and (found := _difference(spool, offset)):
        line = (
            f"spark.checkpoint: {folder} is at epoch {offset.epoch}, but the spool at {spool.path} {found}: it was put"
            " back from an older copy. Restore the newer one, and nothing is lost or read twice"
        )
        raise ConfigurationError([line])


def _newest_offset(config: Config, folder: str) -> _Offset | None:
    """The offset of the newest micro-batch; None if there is none, or none that can be read, which Spark reports.

    Cloud Storage is asked only if the spool is there, too: Spark has a client and credentials of its own.
    """
    if "://" in folder and not (in_cloud_storage(folder) and in_cloud_storage(config.spool.path)):
        return None
    with suppress(FileNotFoundError, SpoolError, msgspec.MsgspecError):
        store = open_store(folder, failure=SpoolError, option="spark.checkpoint")
        numbers = [int(name) for name in store.list(_FOLDER) if name.isdecimal()]
        if not numbers:
            return None
        lines = store.read(f"{_FOLDER}/{max(numbers)}").to_pybytes().split(b"\n")
        offsets = [line for line in lines[_LINES_BEFORE_OFFSETS:] if line not in (b"", _NO_OFFSET)]
        return msgspec.json.decode(offsets[0], type=_Offset) if offsets else None
    return None


def _difference(spool: Spool, offset: _Offset) -> str:
    """The difference between the spool and the copy that the offset was read from; empty if none is known."""
    latest = spool.latest()
    if offset.epoch > latest:
        return f"ends with epoch {latest}"
    if offset.at:
        with suppress(FileNotFoundError):  # pruned
            is_same = spool.manifest(offset.epoch).identity == offset.at
            return "" if is_same else f"has another epoch {offset.epoch}"
    return ""


def _contradiction(spool: Spool, offset: _Offset) -> str:
    """The reason why the spool is not that of the offset; empty if it is, or may be."""
    try:
        found = spool.header().spool_id
    except FileNotFoundError:
        return f"there is no spool at {spool.path}"
    return f"at {spool.path} is spool {found}" if found != offset.spool else ""
