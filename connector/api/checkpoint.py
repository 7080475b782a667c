"""The position after an epoch, as the text that callers store and give back to resume. Pure."""

from dataclasses import dataclass

import orjson

from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError
from connector.spool.manifest import watermark_of

VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An epoch that is done: everything committed up to its watermark was processed.

    Attributes:
        stream: the change stream, ``project/instance/database/change_stream``.
        epoch: the epoch's number.
        identity: the epoch's identity, ``<watermark as RFC 3339>/<writer>``.
    """

    stream: str
    epoch: int
    identity: str

    @property
    def watermark(self) -> int:
        """The epoch's last timestamp, inclusive; nanoseconds since 1970."""
        return watermark_of(self.identity)

    def to_text(self) -> str:
        """A JSON object on one line."""
        return orjson.dumps(
            {"version": VERSION, "stream": self.stream, "epoch": self.epoch, "identity": self.identity}
        ).decode()

    @classmethod
    def of(cls, text: str, stream: str) -> "Checkpoint":
        """Reads what :meth:`to_text` wrote.

        Args:
            text: the checkpoint.
            stream: the change stream that it must be of.

        Raises:
            ConfigurationError: it is damaged, of a newer version, or of another change stream.
        """
        try:
            node = orjson.loads(text)
            version, found = int(node["version"]), cls(str(node["stream"]), int(node["epoch"]), str(node["identity"]))
            _ = found.watermark
        except (ValueError, KeyError, TypeError, IndexError):
            raise ConfigurationError(
                ["checkpoint: it is not a valid checkpoint: give the whole text of an epoch's checkpoint"]
            ) from None
        if version > VERSION:
            raise ConfigurationError(
                [f"checkpoint: its version {version} is newer than {VERSION}: upgrade spanner-cdc-spark"]
            )
        if found.stream != stream:
            raise ConfigurationError([f"checkpoint: it is of change stream {found.stream}, not of {stream}"])
        return found

    def __str__(self) -> str:
        return f"epoch {self.epoch}, up to {format_rfc3339(self.watermark)}"
