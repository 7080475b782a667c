"""Versions of tables, by the classes of the JVM: a statement for each of fifty tables takes too long."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

AT_A_TIME = 8
"""Tables that are asked at the same time."""


class Versions(ABC):
    """The versions of the tables of a destination."""

    def now(self, names: Sequence[str]) -> Mapping[str, int]:
        """The versions that tables have now, by their names in the destination; one that is not there is absent.

        Raises:
            PySparkException, Py4JError: the destination cannot be read.
        """
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            found = zip(names, threads.map(self._now, names), strict=True)
            return {name: version for name, version in found if version is not None}

    def keep(self, versions: Mapping[str, int], epoch: int, now: int) -> None:
        """Keeps versions of tables from being removed, where the format does not do so by itself.

        Args:
            versions: by the names of the tables in the destination.
            epoch: the epoch of the cut.
            now: Unix milliseconds.
        """
        del versions, epoch, now

    @abstractmethod
    def compact(self, name: str) -> None:
        """Makes one file of the small ones of a table, and forgets its older versions if the format keeps all.

        Raises:
            PySparkException, Py4JError: it is not done.
        """

    @abstractmethod
    def _now(self, name: str) -> int | None:
        """The version of a table; None if there is no table, or no version of it."""
