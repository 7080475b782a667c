"""Where a query is: Spark's offset, as the JSON that Spark keeps in its checkpoint.

Offset N means that everything up to and including epoch N is done. Spark compares offsets as text, so the order of
the keys is fixed. From the second offset on it names the spool: a checkpoint that meets another spool in the same
folder is refused, where it would else skip that spool's first epochs. So is one that was past the epoch of that number
in another copy of the spool (:mod:`spark_sink.source.copies`). Newer versions of this program read older
offsets; an older program refuses a newer one.
"""

from dataclasses import dataclass

from connector.errors import SpoolError
from connector.spool.manifest import watermark_of

VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything up to ``epoch`` is done.

    ``spool_id`` is empty in a query's first offset, which may be older than the spool. ``pinned`` holds the options
    that shape what the micro-batch writes: they are in the checkpoint before anything is written, so that a replay
    writes the same even if the options were changed in between. ``at`` is the epoch's
    :attr:`connector.spool.manifest.Manifest.identity`, empty in offsets of before it was kept.
    """

    epoch: int
    spool_id: str = ""
    pinned: str = ""
    at: str = ""

    def to_json(self) -> dict[str, object]:
        """The offset as Spark keeps it."""
        node: dict[str, object] = {"version": VERSION, "epoch": self.epoch}
        if self.spool_id:
            node["spool"] = self.spool_id
        if self.at:
            node["at"] = self.at
        if self.pinned:
            node["pinned"] = self.pinned
        return node

    @classmethod
    def from_json(cls, node: dict[str, object]) -> "Offset":
        """Reads an offset from Spark's checkpoint.

        Raises:
            SpoolError: it is no such offset, or of a newer version.
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
        at = str(node.get("at", ""))
        if at:
            _checked(at)
        return cls(epoch, str(node.get("spool", "")), str(node.get("pinned", "")), at)


def _checked(at: str) -> None:
    try:
        watermark_of(at)
    except (IndexError, ValueError) as error:
        raise SpoolError(
            f"Spark's checkpoint holds an offset that is damaged: {at!r} identifies no epoch",
            hint="Restore it from a copy, or start the query anew with a new checkpoint.",
        ) from error
