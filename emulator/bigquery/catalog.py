"""The datasets and tables of the BigQuery double, and who may not touch them."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from emulator.bigquery.contents import Contents
from emulator.bigquery.partitions import check_partitions
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import Column, Definition, Json, check, patched, read_columns, to_rest

Now = Callable[[], datetime]

_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")
_TABLE = re.compile(r"[\w\- ]{1,1024}")
_KEPT = {"description", "friendlyName", "labels", "expirationTime", "rangePartitioning", "timePartitioning"}
_DROPPED = {"tableReference", "maxStaleness", "kind", "etag", "type"}  # what BigQuery takes no notice of
_SHAPES = {"schema", "tableConstraints", "clustering"}
_LONGEST_STALENESS = timedelta(hours=24)


class Table:
    """A table. Its definition is replaced as a whole, with the catalog's lock held; so are its contents read.

    `bytes` is about what it holds, `applied` when its changes were applied last.
    """

    def __init__(self, dataset: str, name: str, definition: Definition, created: datetime, number: int) -> None:
        self.dataset = dataset
        self.name = name
        self.definition = definition
        self.created = created
        self.contents = Contents(_as_written(definition))
        self.bytes = 0
        self.applied = created
        self._number = number
        self._version = 0

    @property
    def schema(self) -> tuple[Column, ...]:
        """The columns there are now."""
        return self.definition.schema

    @property
    def etag(self) -> str:
        """A text that changes with the definition, and is no other table's."""
        return f"table-{self._number}-{self._version}"

    def make_contents(self, definition: Definition) -> None:
        """Gives the rows another key, by which none of them was changed."""
        rows = self.contents.rows(self.schema)
        streamed = self.contents.streamed
        self.contents = Contents(_as_written(definition))
        if streamed is not None:
            self.contents.append(rows, streamed)

    def redefine(self, definition: Definition) -> None:
        """Gives the table another definition; its contents have that key."""
        self.definition = definition
        self._version += 1


class Catalog:
    """What a project has. Its methods are called from many threads; those that change something hold `lock`."""

    def __init__(self, project: str, now: Now) -> None:
        self.project = project
        self.now = now
        self.lock = threading.RLock()
        self.datasets: dict[str, Json] = {}
        self._tables: dict[tuple[str, str], Table] = {}
        self._denied: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)

    def deny(self, dataset: str, table: str = "") -> None:
        """Denies a table, or a dataset and all in it."""
        self._denied.add((dataset, table))

    def allow(self, dataset: str, table: str = "") -> None:
        """Ends what `deny` began."""
        self._denied.discard((dataset, table))

    def check_access(self, dataset: str, table: str = "") -> None:
        """Refuses what is denied."""
        if (dataset, "") in self._denied:
            what = f"Dataset {self.project}:{dataset}"
        elif (dataset, table) in self._denied:
            what = f"Table {self.label(dataset, table)}"
        else:
            return
        raise RefusedError(Reason.ACCESS_DENIED, f"Access Denied: {what}: User does not have permission.")

    def label(self, dataset: str, table: str) -> str:
        """A table as BigQuery's messages name it."""
        return f"{self.project}:{dataset}.{table}"

    def insert_dataset(self, resource: Json) -> Json:
        """Makes a dataset."""
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
                "creationTime": str(_milliseconds(self.now())),
                **resource,
            }
            return self.datasets[name]

    def dataset(self, name: str) -> Json:
        """A dataset."""
        self.check_access(name)
        found = self.datasets.get(name)
        if found is None:
            raise RefusedError(Reason.NOT_FOUND, f"Not found: Dataset {self.project}:{name}")
        return found

    def insert_table(self, dataset: str, resource: Json) -> Json:
        """Makes a table; refuses a definition that BigQuery does not take."""
        name = str(resource.get("tableReference", {}).get("tableId", ""))
        if not _TABLE.fullmatch(name):
            raise invalid(f'Invalid table ID "{name}".')
        self.check_access(dataset, name)
        self.dataset(dataset)
        return self.resource(self.add(dataset, name, _definition(resource)))

    def add(self, dataset: str, name: str, definition: Definition) -> Table:
        """Makes a table; refuses a name that there is."""
        with self.lock:
            if (dataset, name) in self._tables:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Table {self.label(dataset, name)}")
            table = Table(dataset, name, definition, self.now(), next(self._numbers))
            self._tables[dataset, name] = table
            return table

    def rename(self, dataset: str, name: str, to: str) -> None:
        """Gives a table another name; refuses one that there is."""
        with self.lock:
            if (dataset, to) in self._tables:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Table {self.label(dataset, to)}")
            table = self._tables.pop((dataset, name))
            table.name = to
            self._tables[dataset, to] = table

    def patch_table(self, dataset: str, name: str, resource: Json, if_match: str | None) -> Json:
        """Changes a table as far as BigQuery lets it be changed; `if_match` is the etag it must still have."""
        _check_keys(resource)
        with self.lock:
            table = self.table(dataset, name)
            if if_match is not None and if_match != table.etag:
                raise RefusedError(Reason.CONDITION_NOT_MET, "Precondition check failed.")
            old = table.definition
            schema = old.schema
            if resource.get("schema") is not None:
                schema = patched(self.label(dataset, name), schema, read_columns(resource["schema"]))
            shape = _definition({"schema": {"fields": to_rest(schema)}, **_shape_of(old), **_without_schema(resource)})
            if (shape.key, shape.clustering) != (old.key, old.clustering):
                raise RefusedError(Reason.NOT_IMPLEMENTED, "The double changes neither key nor clustering of a table")
            table.redefine(replace(old, schema=schema, others={**old.others, **shape.others}))
            return self.resource(table)

    def delete_table(self, dataset: str, name: str) -> None:
        """Deletes a table and its rows."""
        with self.lock:
            self.table(dataset, name)
            del self._tables[dataset, name]

    def list_tables(self, dataset: str) -> list[Json]:
        """The tables of a dataset, by name."""
        self.dataset(dataset)
        with self.lock:
            found = [table for (of, _), table in sorted(self._tables.items()) if of == dataset]
            return [{"kind": "bigquery#table", "type": "TABLE", **self._identity(table)} for table in found]

    def table(self, dataset: str, name: str) -> Table:
        """A table; refuses one that there is not, or that is denied."""
        self.check_access(dataset, name)
        found = self._tables.get((dataset, name))
        if found is None:
            self.dataset(dataset)
            raise RefusedError(Reason.NOT_FOUND, f"Not found: Table {self.label(dataset, name)}")
        return found

    def known(self, dataset: str, name: str) -> Table:
        """A table, even if it is denied; KeyError without it."""
        return self._tables[dataset, name]

    def names(self, dataset: str) -> list[str]:
        """The names of a dataset's tables, even if it is denied."""
        with self.lock:
            return sorted(name for of, name in self._tables if of == dataset)

    def drop(self, dataset: str, name: str) -> None:
        """Deletes a table, even if it is denied; KeyError without it."""
        with self.lock:
            del self._tables[dataset, name]

    def retype(self, dataset: str, name: str, column: str, kind: str) -> None:
        """Drops a column and adds it with another type; KeyError without the table."""
        with self.lock:
            table = self._tables[dataset, name]
            if column in (*table.definition.key, *table.definition.clustering):
                raise invalid(f"Cannot drop column {column}: it is of the primary key or of the clustering")
            table.contents.rename(column, None)
            schema = tuple(replace(one, type=kind) if one.name == column else one for one in table.schema)
            table.redefine(replace(table.definition, schema=schema))

    def holds(self, table: Table) -> bool:
        """Whether a table has been neither deleted nor made anew."""
        return self._tables.get((table.dataset, table.name)) is table

    def set_max_staleness(self, dataset: str, name: str, staleness: timedelta) -> None:
        """Does what ALTER TABLE does, the only way there is."""
        if not timedelta(0) <= staleness <= _LONGEST_STALENESS:
            raise invalid("max_staleness of a table is between 0 and 24 hours")
        with self.lock:
            table = self.table(dataset, name)
            table.redefine(replace(table.definition, max_staleness=staleness))

    def resource(self, table: Table) -> Json:
        """A table as REST shows it."""
        definition = table.definition
        shown: Json = {
            "kind": "bigquery#table",
            "type": "TABLE",
            **self._identity(table),
            **definition.others,
            **_shape_of(definition),
            "etag": table.etag,
            "schema": {"fields": to_rest(definition.schema)},
            "location": self.datasets[table.dataset]["location"],
            "creationTime": str(_milliseconds(table.created)),
            "lastModifiedTime": str(_milliseconds(table.created)),
            "numRows": "0",
            "numBytes": str(table.bytes),
        }
        if definition.max_staleness is not None:
            shown["maxStaleness"] = _interval(definition.max_staleness)
        return shown

    def _identity(self, table: Table) -> Json:
        reference = {"projectId": self.project, "datasetId": table.dataset, "tableId": table.name}
        return {"id": self.label(table.dataset, table.name), "tableReference": reference}


def _definition(resource: Json) -> Definition:
    _check_keys(resource)
    constraints: dict[str, Any] = resource.get("tableConstraints") or {}
    if constraints.get("foreignKeys"):
        raise RefusedError(Reason.NOT_IMPLEMENTED, "The double has no foreign keys")
    definition = Definition(
        schema=read_columns(resource.get("schema") or {}),
        key=tuple((constraints.get("primaryKey") or {}).get("columns") or ()),
        clustering=tuple((resource.get("clustering") or {}).get("fields") or ()),
        others={key: value for key, value in resource.items() if key in _KEPT and value is not None},
    )
    check(definition)
    check_partitions(resource, definition.schema)
    return definition


def _check_keys(resource: Json) -> None:
    if unknown := resource.keys() - _KEPT - _DROPPED - _SHAPES:
        raise RefusedError(Reason.NOT_IMPLEMENTED, f"The double knows no property {min(unknown)!r} of a table")


def _shape_of(definition: Definition) -> Json:
    shape: Json = {}
    if definition.key:
        shape["tableConstraints"] = {"primaryKey": {"columns": list(definition.key)}}
    if definition.clustering:
        shape["clustering"] = {"fields": list(definition.clustering)}
    return shape


def _without_schema(resource: Json) -> Json:
    return {key: value for key, value in resource.items() if key != "schema"}


def _as_written(definition: Definition) -> list[str]:
    """The key's columns, as the schema writes them."""
    names = {column.name.lower(): column.name for column in definition.schema}
    return [names[name.lower()] for name in definition.key]


def _interval(span: timedelta) -> str:
    """An interval as BigQuery writes it: years-months days hours:minutes:seconds."""
    minutes, seconds = divmod(span.seconds, 60)
    return f"0-0 {span.days} {minutes // 60}:{minutes % 60}:{seconds}"


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
