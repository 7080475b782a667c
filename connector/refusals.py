"""Tables of what the refusals of a service mean, by the reasons and the texts of its answers. Pure.

Each service has a table of its own; how one is looked up is the same for all.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

_Meaning = TypeVar("_Meaning")


class Refusal(NamedTuple):
    """The reason why a service refuses a request, as a clause, and a hint."""

    why: str
    hint: str


class Refusals(Generic[_Meaning]):
    """A table of the meanings of refusals.

    Args:
        by_reason: the meanings of reasons, such as SERVICE_DISABLED.
        by_message: regular expressions with their meanings, in the order in which they are tried. Case does not matter.
    """

    def __init__(self, by_reason: Mapping[str, _Meaning], by_message: Iterable[tuple[str, _Meaning]] = ()) -> None:
        self._by_reason = by_reason
        self._by_message = [(re.compile(pattern, re.IGNORECASE), meaning) for pattern, meaning in by_message]

    def find(self, reasons: Collection[str], message: str) -> _Meaning | None:
        """The meaning of a refusal, or None if the table does not have it.

        Args:
            reasons: of the answer.
            message: its text. Nothing of it is returned.
        """
        for reason in reasons:
            if (meaning := self._by_reason.get(reason)) is not None:
                return meaning
        return next((meaning for pattern, meaning in self._by_message if pattern.search(message)), None)
