"""What a sink of ours tells of itself in the spool, for the status page: rows refused, and tables that are stopped.

The sink is a process of its own, perhaps on another machine; the daemon reads its report when it prunes the spool.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, to_json


class SinkReport(BaseModel):
    """A sink's report.

    ``first`` is the first epoch of the newest micro-batch that had rows refused, 0 before one had; ``refused`` counts
    rows that became dead letters, whatever became of those since; ``stopped`` is why a table is, by its name in the
    source.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    first: int = Field(ge=0)
    refused: int = Field(ge=0)
    stopped: dict[str, str]

    def after(self, first: int, refused: int, tables: Mapping[str, str]) -> "SinkReport":
        """The report after the micro-batch that begins with epoch ``first``.

        Args:
            first: the same again where the micro-batch is done again; it is counted once.
            refused: its rows that became dead letters.
            tables: why each of its tables is stopped; empty where it is not.
        """
        stopped = {table: why for table, why in {**self.stopped, **tables}.items() if why}
        if not refused or first <= self.first:
            return self.model_copy(update={"stopped": stopped})
        return SinkReport(first=first, refused=self.refused + refused, stopped=stopped)

    def without(self, table: str) -> "SinkReport":
        """The report once a table is stopped no more."""
        return self.model_copy(update={"stopped": {name: why for name, why in self.stopped.items() if name != table}})


NOTHING = SinkReport(first=0, refused=0, stopped={})


def report_of(spool: Spool, consumer: str) -> SinkReport:
    """What a sink has told; nothing, if it has not, or if nobody can make sense of it: it is told anew.

    Raises:
        SpoolError: it cannot be read.
    """
    try:
        return SinkReport.model_validate_json(spool.storage.read(_path(consumer)).to_pybytes())
    except (FileNotFoundError, ValidationError):
        return NOTHING


def tell(spool: Spool, consumer: str, report: SinkReport) -> None:
    """Replaces what a sink has told.

    Raises:
        SpoolError: it cannot be written.
    """
    spool.storage.replace(_path(consumer), to_json(report))


def _path(consumer: str) -> str:
    return f"consumers/{consumer}.report"  # not .json: that would be a consumer
