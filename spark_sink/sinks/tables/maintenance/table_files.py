"""The files of a table, and whether there are too many of them. Pure."""

from dataclasses import dataclass

_USUAL_SIZE = 128 * 1024 * 1024
"""Bytes of a file that is worth opening."""

SPARE = 50
"""The number of files beyond those that the size of a table needs, from which on they are made fewer."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table.

    Attributes:
        data: the number of those with rows.
        size: bytes of these.
        deletes: the number of those that name deleted rows of the others.
    """

    data: int
    size: int
    deletes: int = 0

    @property
    def are_many(self) -> bool:
        """True if a reader opens many more files than the size of the table needs."""
        return self.data - 2 * (self.size // _USUAL_SIZE) > SPARE or self.deletes > SPARE
