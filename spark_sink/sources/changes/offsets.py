"""The position of a query: Spark's offset, as the JSON that Spark keeps in its checkpoint.

Offset N means that every epoch up to and including N is done. Spark compares offsets as text, so the order of the keys
is fixed. From the second offset on, an offset names the spool. If another spool is in the same folder, the checkpoint
is refused, because the query would skip the first epochs of that spool. It is also refused if the spool is another
copy of the same spool (:mod:`spark_sink.sources.changes.spool_copies`). Newer versions read the offsets of older ones;
an older version rejects the offsets of a newer one.
"""

from dataclasses import dataclass

from connector.errors import SpoolError
from connector.spool.manifest import watermark_of

VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """Every epoch up to ``epoch`` is done.

    Attributes:
        epoch: the number of the last epoch.
        spool_id: the id of the spool; empty in the first offset of a query, which may be older than the spool.
        pinned: the options that decide what the micro-batch writes. They are in the checkpoint before anything is
            written, so that a replay writes the same even if the options were changed in between.
        at: the epoch's :attr:`connector.spool.manifest.Manifest.identity`; empty in offsets of older versions.
    """

    epoch: int
    spool_id: str = ""
    pinned: str = ""
    at: str = ""

    def to_json(self) -> dict[str, object]:
        """The offset as Spark keeps it."""
        texts = {"spool": self.spool_id, "at": self.at, "pinned": self.pinned}
        return {"version": VERSION, "epoch": self.epoch, **{name: text for name, text in texts.items() if text}}

    @classmethod
    def from_json(cls, node: dict[str, object]) -> "Offset":
        """Reads an offset from Spark's checkpoint.

        Raises:
            SpoolError: it is not an offset of this source, or has a newer version.
        """
        version, epoch = node.get("version"), node.get("epoch")
        if not isinstance(version, int) or not isinstance(epoch, int) or version < 1 or epoch < 0:
            raise SpoolError(
                f"Spark's checkpoint holds an offset that is not this source's: {node}",
                hint="Use the checkpoint of this query, or a new one.",
            )
        if version > VERSION:
            raise SpoolError(
                f"Spark's checkpoint holds an offset of version {version}, newer than this program's {VERSION}",
                hint="Use the newer spanner-cdc that wrote it.",
            )
        spool_id, pinned, at = (str(node.get(name, "")) for name in ("spool", "pinned", "at"))
        try:
            if at:
                watermark_of(at)
        except (IndexError, ValueError) as error:
            raise SpoolError(
                f"Spark's checkpoint holds a damaged offset: {at!r} does not identify an epoch",
                hint="Restore it from a backup, or start the query with a new checkpoint.",
            ) from error
        return cls(epoch, spool_id, pinned, at)
