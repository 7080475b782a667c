"""The datasets and tables of the BigQuery double, and which of them are denied."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from datetime import datetime

from emulator.bigquery.contents import TableContents
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import ColumnDefinition, Definition, Json

Now = Callable[[], datetime]

_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")


class StoredTable:
    """A table. Its definition is replaced, and its contents are read, with the catalog's lock held.

    `bytes` is its approximate size, `applied` when its changes were last applied.
    """

    def __init__(self, dataset: str, name: str, definition: Definition, created: datetime, number: int) -> None:
        self.dataset = dataset
        self.name = name
        self.definition = definition
        self.created = created
        self.contents = TableContents(_as_written(definition))
        self.bytes = 0
        self.applied = created
        self._number = number
        self._version = 0

    @property
    def schema(self) -> tuple[ColumnDefinition, ...]:
        """The current columns."""
        return self.definition.schema

    @property
    def etag(self) -> str:
        """A string that changes with the definition, and is unique to the table."""
        return f"table-{self._number}-{self._version}"

    def make_contents(self, definition: Definition) -> None:
        """Sets the key of another definition, by which no row has been changed yet."""
        rows = self.contents.rows(self.schema)
        streamed = self.contents.streamed
        self.contents = TableContents(_as_written(definition))
        if streamed is not None:
            self.contents.append(rows, streamed)

    def redefine(self, definition: Definition) -> None:
        """Replaces the definition; the contents must have its key."""
        self.definition = definition
        self._version += 1


class Catalog:
    """The datasets and tables of a project; may be called from many threads. Methods that change it hold `lock`.

    `denied` are the tables that nobody may access, and the datasets, whose table is empty there, with all their tables.
    """

    def __init__(self, project: str, now: Now) -> None:
        self.project = project
        self.now = now
        self.lock = threading.RLock()
        self.datasets: dict[str, Json] = {}
        self._tables: dict[tuple[str, str], StoredTable] = {}
        self.denied: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)

    def check_access(self, dataset: str, table: str = "") -> None:
        """Raises RefusedError if access is denied."""
        if (dataset, "") in self.denied:
            what = f"Dataset {self.project}:{dataset}"
        elif (dataset, table) in self.denied:
            what = f"Table {self.label(dataset, table)}"
        else:
            return
        raise RefusedError(Reason.ACCESS_DENIED, f"Access Denied: {what}: User does not have permission.")

    def label(self, dataset: str, table: str) -> str:
        """Formats a table's name as BigQuery's messages do."""
        return f"{self.project}:{dataset}.{table}"

    def insert_dataset(self, resource: Json) -> Json:
        """Creates a dataset."""
        name = str(resource.get("datasetReference", {}).get("datasetId", ""))
        if not _DATASET.fullmatch(name):
            raise invalid(f'Invalid dataset ID "{name}". Dataset IDs must be alphanumeric (plus underscores).')
        self.check_access(name)
        with self.lock:
            if name in self.datasets:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Dataset {self.project}:{name}")
            self.datasets[name] = {
                "kind": "bigquery#dataset",
                "id": f"{self.project}:{name}",
                "etag": f"dataset-{next(self._numbers)}",
                "location": "US",
                "creationTime": str(milliseconds(self.now())),
                **resource,
            }
            return self.datasets[name]

    def dataset(self, name: str) -> Json:
        """Returns a dataset's resource; raises RefusedError if it is missing or denied."""
        self.check_access(name)
        found = self.datasets.get(name)
        if found is None:
            raise RefusedError(Reason.NOT_FOUND, f"Not found: Dataset {self.project}:{name}")
        return found

    def add(self, dataset: str, name: str, definition: Definition) -> StoredTable:
        """Creates a table; raises RefusedError if the name is in use."""
        with self.lock:
            if (dataset, name) in self._tables:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Table {self.label(dataset, name)}")
            table = StoredTable(dataset, name, definition, self.now(), next(self._numbers))
            self._tables[dataset, name] = table
            return table

    def rename(self, dataset: str, name: str, to: str) -> None:
        """Renames a table; raises RefusedError if the name is in use."""
        with self.lock:
            if (dataset, to) in self._tables:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Table {self.label(dataset, to)}")
            table = self._tables.pop((dataset, name))
            table.name = to
            self._tables[dataset, to] = table

    def remove(self, dataset: str, name: str) -> None:
        """Deletes a table and its rows; raises RefusedError if it is missing or denied."""
        with self.lock:
            self.table(dataset, name)
            del self._tables[dataset, name]

    def tables(self, dataset: str) -> list[StoredTable]:
        """Returns the tables of a dataset, by name; raises RefusedError if it is missing or denied."""
        self.dataset(dataset)
        with self.lock:
            return [table for (of, _), table in sorted(self._tables.items()) if of == dataset]

    def table(self, dataset: str, name: str) -> StoredTable:
        """Returns a table; raises RefusedError if it is missing or denied."""
        self.check_access(dataset, name)
        found = self._tables.get((dataset, name))
        if found is None:
            self.dataset(dataset)
            raise RefusedError(Reason.NOT_FOUND, f"Not found: Table {self.label(dataset, name)}")
        return found

    def known(self, dataset: str, name: str) -> StoredTable:
        """Returns a table, even if it is denied; KeyError if it is missing."""
        return self._tables[dataset, name]

    def names(self, dataset: str) -> list[str]:
        """Returns the names of a dataset's tables, even if it is denied."""
        with self.lock:
            return sorted(name for of, name in self._tables if of == dataset)

    def drop(self, dataset: str, name: str) -> None:
        """Deletes a table, even if it is denied; KeyError if it is missing."""
        with self.lock:
            del self._tables[dataset, name]

    def holds(self, table: StoredTable) -> bool:
        """True if a table has been neither deleted nor created again."""
        return self._tables.get((table.dataset, table.name)) is table


def _as_written(definition: Definition) -> list[str]:
    """Returns the key's columns, spelled as in the schema."""
    names = {column.name.lower(): column.name for column in definition.schema}
    return [names[name.lower()] for name in definition.key]


def milliseconds(timestamp: datetime) -> int:
    """A timestamp in milliseconds since 1970, as REST shows it."""
    return int(timestamp.timestamp() * 1000)
