"""The spool that a sink delivers: of a change stream, or of one of its backfills."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from connector.config.loading import Config
from connector.core.health.retries import BACKFILL, SINK
from connector.errors import SpoolError
from connector.spool.backfill.records import document_of
from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from connector.telemetry.retrying import reporting_retries
from spark_sink.errors import SinkError


@dataclass(frozen=True, slots=True)
class Feed:
    """A spool that a sink delivers.

    Attributes:
        spool: the change stream's, or a backfill's.
        stream: the change stream's.
    """

    spool: Spool
    stream: Spool

    @property
    def is_backfill(self) -> bool:
        """True if the spool is a backfill's."""
        return self.spool.path != self.stream.path

    @property
    def is_repair(self) -> bool:
        """True if the spool is that of a repair: a backfill that has only rows which differed.

        Raises:
            SpoolError: its document cannot be read.
        """
        return self.is_backfill and document_of(self.spool).is_repair

    @classmethod
    def of(cls, config: Config) -> Self:
        """The change stream of a configuration."""
        spool = Spool.at(absolute(config.spool.path))
        return cls(spool, spool)

    @classmethod
    def at(cls, path: str) -> Self:
        """The spool at a path, which may be a backfill's; for whoever is given nothing but the path."""
        spool = Spool.at(path)
        stream, _, folder = spool.path.rpartition("/")[0].rpartition("/")
        is_backfill = folder == "backfills" and spool.storage.exists("backfill.json")
        return cls(spool, Spool.at(stream) if is_backfill else spool)

    @property
    def options(self) -> Mapping[str, str]:
        """The feed as options of a source; :meth:`of_options` reads them."""
        return {"spool": self.spool.path, "stream": self.stream.path}

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Self:
        """The feed of a source's options."""
        return cls(Spool.at(options["spool"]), Spool.at(options["stream"]))

    def reporting_retries(self, consumer: str, *, of_task: bool = False) -> AbstractContextManager[None]:
        """Reports in the change stream's spool what this process of the sink retries.

        Arguments as of :func:`connector.telemetry.retrying.reporting_retries`.
        """
        return reporting_retries(self.stream, BACKFILL if self.is_backfill else SINK, consumer, of_task=of_task)


def existing_spool(config: Config, *, hint: str) -> Spool:
    """The spool of a configuration's change stream, for a command beside the sink.

    Args:
        config: the configuration.
        hint: the advice if there is none.

    Raises:
        SpoolError: there is no spool.
        SpoolMismatchError: it is another stream's.
    """
    spool = Spool.at(absolute(config.spool.path))
    try:
        spool.check_source(config.source.name, config.source.rules_fingerprint)
    except FileNotFoundError:
        raise SpoolError(f"there is no spool at {spool.path}", hint=hint) from None
    return spool


def delivered_up_to(spool: Spool, consumer: str) -> int:
    """The commit timestamp up to which a sink has delivered everything, in nanoseconds since 1970.

    Raises:
        SinkError: it has not delivered anything yet.
    """
    found = find(spool, consumer)
    if found is None or not found.at:
        raise SinkError(
            f"the sink has delivered no epoch of the spool at {spool.path}",
            hint="Verify once it has; a minute's files are written when the watermark has passed it.",
        )
    return watermark_of(found.at)
