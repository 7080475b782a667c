"""Decides which records become events, by table and by transaction tag. Applied to complete transactions."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import numpy as np

from connector.core.changes import Changes, integers


class RecordFilter:
    """Keeps records of included and not excluded tables whose transaction tag has none of the prefixes.

    Args:
        include: shell patterns over table names; empty for all.
        exclude: shell patterns over table names.
        skip_transaction_tags: prefixes of tags to omit, against replication loops.
    """

    def __init__(
        self, include: Iterable[str] = (), exclude: Iterable[str] = (), skip_transaction_tags: Iterable[str] = ()
    ) -> None:
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._tags = tuple(skip_transaction_tags)
        self._tables: dict[str, bool] = {}

    def __call__(self, changes: Changes) -> Changes:
        """The records that become events."""
        tables = np.array([self._keeps(schema.table_name) for schema in changes.record_schemas], np.bool_)
        if not tables.all():
            changes = changes.kept(tables[integers(changes.column("record_schema"))])
        if self._tags and len(changes):
            tags = changes.column("transaction_tag").dictionary_encode()
            mask = np.array([self.keeps_tag(tag) for tag in tags.dictionary.to_pylist()], np.bool_)
            changes = changes.kept(mask[integers(tags.indices)])
        return changes

    def _keeps(self, table: str) -> bool:
        if table not in self._tables:
            self._tables[table] = self.keeps(table)
        return self._tables[table]

    def keeps(self, table: str) -> bool:
        """True if the table's events are kept."""
        if self._include and not any(fnmatchcase(table, pattern) for pattern in self._include):
            return False
        return not any(fnmatchcase(table, pattern) for pattern in self._exclude)

    def keeps_tag(self, tag: str) -> bool:
        """True if the events of transactions with this tag are kept."""
        return not (self._tags and tag.startswith(self._tags))

    def unmatched(self, tables: Iterable[str]) -> list[str]:
        """The patterns that match no table: most likely typing errors."""
        names = list(tables)
        patterns = (*self._include, *self._exclude)
        return [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
