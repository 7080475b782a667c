"""Finds the read functions of a change stream among all functions of its database. Pure.

No table of INFORMATION_SCHEMA maps a function to its stream and placement. Its name is made of both, and an underscore
is between them that either may contain too. So each listed name is compared with that of every stream and placement of
the database. A name that two could own is an error, and so is one that begins as the stream's and that none owns.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from connector.core.dialects import IMMUTABLE, MUTABLE, Dialect
from connector.errors import ConfigurationError

OPTION = "per_placement_tvf"
"""The option of a change stream that has a read function for each placement."""

DEFAULT = "default"
"""The placement of rows that are in no other; the list of placements may omit it, and it has a function always."""


def has_functions(options: Mapping[str, str]) -> bool:
    """True if a change stream with these options has a read function for each placement."""
    return options.get(OPTION, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class MatchedFunctions:
    """The read functions of a change stream.

    Attributes:
        functions: the name of each, by its placement.
        unknown: the names that begin as those of the stream, and are of no placement.
        missing: the placements that have no function; the default one too, listed or not.
    """

    functions: Mapping[str, str]
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def unsettled(self, stream: str, placements: Collection[str] | None) -> str:
        """The reason why the list may be incomplete, as a clause; empty if it is complete.

        Args:
            stream: the change stream's name.
            placements: those that are read; None for all.
        """
        missing = [name for name in self.missing if placements is None or name in placements]
        if self.unknown:
            return f"function {self.unknown[0]} begins as those of change stream {stream}, and is of no placement"
        if missing:
            return (
                f"change stream {stream} has no function of placement {missing[0]} that this account sees: a database"
                " role needs EXECUTE on it"
            )
        return ""


def match_functions(
    stream: str,
    dialect: Dialect,
    *,
    streams: Mapping[str, bool],
    placements: Collection[str],
    functions: Sequence[str],
) -> MatchedFunctions:
    """The read functions of a change stream, by placement.

    Args:
        stream: its name.
        dialect: the database's. Names are compared without case where it ignores it.
        streams: for each change stream of the database, whether it has a function for each placement.
        placements: all placements of the database; the default one may be missing.
        functions: the names of all functions.

    Raises:
        ConfigurationError: a name could be of this stream, and of another stream or placement.
    """
    spelled = str.casefold if dialect.ignores_case else str
    prefix = dialect.function(stream, MUTABLE)
    known = sorted({*placements, *([] if any(spelled(one) == DEFAULT for one in placements) else [DEFAULT])})
    owners: dict[str, list[tuple[str, str | None]]] = {}
    for name, has_own in streams.items():
        for mode in (IMMUTABLE, MUTABLE):
            owners.setdefault(spelled(dialect.function(name, mode)), []).append((name, None))
        for placement in known if has_own else ():
            owners.setdefault(spelled(f"{dialect.function(name, MUTABLE)}_{placement}"), []).append((name, placement))
    found, unknown = {}, []
    for function in functions:
        candidates = list(dict.fromkeys(owners.get(spelled(function), ())))
        own = [placement for name, placement in candidates if name == stream and placement is not None]
        if own and len(candidates) > 1:
            raise _ambiguous(function, candidates)
        if own:
            found[own[0]] = function
        elif not candidates and spelled(function).startswith(spelled(f"{prefix}_")):
            unknown.append(function)
    missing = tuple(placement for placement in known if placement not in found)
    return MatchedFunctions(dict(sorted(found.items())), tuple(unknown), missing)


def _ambiguous(function: str, owners: Sequence[tuple[str, str | None]]) -> ConfigurationError:
    named = " and of ".join(
        f"change stream {stream}" if placement is None else f"change stream {stream}, placement {placement}"
        for stream, placement in owners
    )
    return ConfigurationError(
        [f"source.change_stream: read function {function} could be of {named}: rename one of them"]
    )


def check_placements(functions: Mapping[str, str], placements: Sequence[str] | None) -> None:
    """Checks that each configured placement has a function; None stands for all.

    Raises:
        ConfigurationError: a placement has none.
    """
    known = ", ".join(functions) or "none"
    errors = [
        f"source.placements: there is no read function of placement {name!r}; known are: {known}"
        for name in placements or ()
        if name not in functions
    ]
    if errors:
        raise ConfigurationError(errors)
