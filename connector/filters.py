"""Which records become events: by table and by transaction tag. Asked only once transactions are complete."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from connector.records import DataChangeRecord


class RecordFilter:
    """Keeps records of included and not excluded tables whose transaction tag has none of the prefixes.

    Args:
        include: shell patterns over table names; empty for all.
        exclude: shell patterns over table names.
        skip_transaction_tags: prefixes of tags to leave out, against replication loops.
    """

    def __init__(
        self, include: Iterable[str] = (), exclude: Iterable[str] = (), skip_transaction_tags: Iterable[str] = ()
    ) -> None:
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._tags = tuple(skip_transaction_tags)
        self._tables: dict[str, bool] = {}

    def __call__(self, record: DataChangeRecord) -> bool:
        """Whether the record becomes events."""
        if self._tags and record.transaction_tag.startswith(self._tags):
            return False
        table = record.table_name
        if table not in self._tables:
            self._tables[table] = self.keeps(table)
        return self._tables[table]

    def keeps(self, table: str) -> bool:
        """Whether the table's events are kept."""
        if self._include and not any(fnmatchcase(table, pattern) for pattern in self._include):
            return False
        return not any(fnmatchcase(table, pattern) for pattern in self._exclude)

    def unmatched(self, tables: Iterable[str]) -> list[str]:
        """The patterns that no table fits: typing errors, most likely."""
        names = list(tables)
        patterns = (*self._include, *self._exclude)
        return [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
