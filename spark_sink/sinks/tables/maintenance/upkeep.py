"""The interface of what a format offers for maintenance; tables are named as in the destination."""

from abc import ABC, abstractmethod

from spark_sink.sinks.tables.maintenance.table_files import TableFiles


class Upkeep(ABC):
    """The maintenance of tables of one format.

    Raises:
        SpannerCdcError, PySparkException, Py4JError: from every method, if the destination refuses.
    """

    @abstractmethod
    def files(self, name: str) -> TableFiles:
        """The files of a table now."""

    @abstractmethod
    def compact(self, name: str) -> None:
        """Makes one file of several small ones, in one commit; the rows stay as they are."""

    @abstractmethod
    def expire(self, name: str, keep: int, now: int) -> None:
        """Removes the versions of a table that were replaced longer ago than both ``keep`` and its own properties say.

        Of very many versions, those that no cut needs are removed earlier.

        Args:
            name: the table.
            keep: milliseconds.
            now: Unix milliseconds.
        """

    def has_many_versions(self, name: str, now: int) -> bool:
        """True if a table has so many versions that old ones are to be removed at once; ``now`` as in :meth:`expire`.

        False in a format whose commits do not grow with them.
        """
        del name, now
        return False

    @abstractmethod
    def is_created(self, name: str) -> bool:
        """True if a table was created by a sink, and not by somebody else."""
