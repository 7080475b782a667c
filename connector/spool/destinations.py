"""Destinations of a spool's sinks: recorded at a sink's first start, and compared at every later one.

A sink that continued into another destination would leave a part of the history in each, without a sign.
"""

from collections.abc import Iterator, Mapping

from connector.errors import ConfigurationError
from connector.spool.consumers import DESTINATION, STARTED, find
from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json

_WHERE = ("sink.path", "sink.project", "sink.dataset", "sink.database")
_UNTOLD = ("sink.object", "envelope.format")
"""Options that identify a destination, and say nothing to people who look for it."""


class Destination(Document):
    """The destination of a sink.

    Attributes:
        type: of the sink.
        options: those that identify the destination, as text by their names.
    """

    type: str
    options: dict[str, str]

    def __str__(self) -> str:
        """The type, where it is, and in parentheses how it is written."""
        where = ".".join(value for name, value in self.options.items() if name in _WHERE)
        how = ", ".join(value for name, value in self.options.items() if value and name not in (*_WHERE, *_UNTOLD))
        return f"{self.type} in {where or 'its destination'}{f' ({how})' if how else ''}"

    @property
    def named(self) -> dict[str, str]:
        """All that identifies it, by the names of options."""
        return {"sink.type": self.type, **self.options}


def destination_of(spool: Spool, name: str) -> Destination | None:
    """The recorded destination of a sink; None if none is recorded.

    Raises:
        SpoolError: it is corrupt, of a newer version, or cannot be read.
    """
    return spool.find(_path(name), Destination, "it names no destination")


def sinks_of(spool: Spool) -> list[str]:
    """The names of the sinks whose destination is recorded."""
    return [file.removesuffix(DESTINATION) for file in spool.storage.list("consumers") if file.endswith(DESTINATION)]


def check_destination(spool: Spool, name: str, wanted: Destination) -> None:
    """Checks that a sink may deliver a spool to a destination; reads the spool alone, and changes nothing.

    Where nothing is recorded yet, because the sink is new or because an older program ran it, any destination will do.

    Raises:
        ConfigurationError: the sink has delivered to another one; another sink of this spool delivers to this one; or
            the name is of a consumer that is not a sink.
        SpoolError: the spool cannot be read.
    """
    recorded = destination_of(spool, name)
    if recorded is not None and recorded != wanted and _has_delivered(spool, name):
        raise ConfigurationError([_refusal(spool, name, recorded, wanted)])
    if recorded is None and name != wanted.type and find(spool, name) is not None:
        raise ConfigurationError([f"sink.name: {name} is a consumer of the spool at {spool.path} that is not a sink"])
    for other in sinks_of(spool) if wanted.options else []:
        if other != name and destination_of(spool, other) == wanted:
            raise ConfigurationError(
                [f"sink.name: sink {other} of the spool at {spool.path} delivers to the same destination as {name}"]
            )


def check_not_a_sink(spool: Spool, consumer: str) -> None:
    """Checks that a query does not take a sink's name: it would count the sink's epochs as its own.

    Raises:
        ConfigurationError: a sink of the spool has that name.
        SpoolError: the spool cannot be read.
    """
    if spool.storage.exists(_path(consumer.partition(".")[0])):
        raise ConfigurationError([f"consumer {consumer!r}: it is the name of a sink of this spool: choose another"])


def keep_destination(spool: Spool, name: str, wanted: Destination) -> None:
    """Checks and records the destination; the sink's lock is held meanwhile.

    Raises:
        ConfigurationError, SpoolError: as :func:`check_destination`.
    """
    check_destination(spool, name, wanted)
    if destination_of(spool, name) != wanted:
        spool.storage.replace(_path(name), to_json(wanted))


def _has_delivered(spool: Spool, name: str) -> bool:
    known = find(spool, name)
    return (known is not None and known.at != "") or spool.storage.exists(f"consumers/{name}{STARTED}")


def _refusal(spool: Spool, name: str, recorded: Destination, wanted: Destination) -> str:
    """One line: what differs, and the three ways to continue."""
    differing = list(_differences(recorded.named, wanted.named))
    first = differing[0][0]
    was = ", ".join(f"{option}: {before}" for option, before, _ in differing)
    now = ", ".join(f"{option}: {after}" for option, _, after in differing)
    return (
        f"{first}: sink {name} has delivered the spool at {spool.path} with {was}, and the configuration has {now}."
        f" To continue, set {was}. To deliver to both, add a second configuration with a sink.name of its own. To start"
        f" over with what the spool still holds, run `spanner-cdc spool {spool.path} --forget {name}` and remove the"
        " sink's checkpoint below spark.checkpoint"
    )


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for option in dict.fromkeys([*before, *after]):
        if before.get(option) != after.get(option):
            yield option, before.get(option, "(not set)"), after.get(option, "(not set)")


def _path(name: str) -> str:
    return f"consumers/{name}{DESTINATION}"
