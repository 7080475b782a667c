"""The parts of a configuration and of a machine that a command needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a command.

    Attributes:
        sections: of the configuration; the others are not looked at.
        spark: whether it starts Spark: Java, PySpark, and the checkpoint's folder.
        status: whether it serves the status page.
        compares: whether it reads the destination, for which some sinks start Spark.
        tables: whether it reads Spanner's tables, whatever the configuration says.
    """

    sections: tuple[str, ...]
    spark: bool = False
    status: bool = False
    compares: bool = False
    tables: bool = False

    @property
    def sink(self) -> bool:
        """True if it delivers, or reads what was delivered."""
        return "sink" in self.sections


_ALL = ("source", "spool", "envelope", "sink", "spark", "status", "drain_timeout")
NEEDS: Mapping[str, Needs] = {
    "run": Needs(_ALL, spark=True, status=True),
    "read": Needs(tuple(name for name in _ALL if name not in ("sink", "spark")), status=True),
    "backfill": Needs(_ALL, spark=True, tables=True),
    "sink": Needs(_ALL, spark=True),
    "audit": Needs(("source", "spool")),
    "verify": Needs(tuple(name for name in _ALL if name != "status"), compares=True, tables=True),
}
"""By the command's name; a reader on executors needs more: :func:`needs_of`."""


def sections_of(command: str) -> Callable[[Mapping[str, object]], tuple[str, ...]]:
    """The sections of a configuration that a command needs, for :func:`connector.config.loading.load`."""

    def sections(options: Mapping[str, object]) -> tuple[str, ...]:
        source = options.get("source")
        return needs_of(command, source.get("reader") if isinstance(source, dict) else None).sections

    return sections


def needs_of(command: str, reader: object) -> Needs:
    """The needs of a command whose configuration has that ``source.reader``."""
    if command == "read" and reader == "executors":
        found = NEEDS[command]
        return Needs((*found.sections, "spark"), spark=True, status=found.status)
    return NEEDS[command]
