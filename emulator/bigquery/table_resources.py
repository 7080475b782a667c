"""The tables of the BigQuery double as its REST interface creates, changes and shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from emulator.bigquery.catalog import Catalog, StoredTable, milliseconds
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import ColumnDefinition, Definition, Json, check, patched, read_columns, to_rest

_NAME = re.compile(r"[\w\- ]{1,1024}")
_KEPT = {
    "description", "encryptionConfiguration", "expirationTime", "friendlyName", "labels", "rangePartitioning",
    "requirePartitionFilter", "timePartitioning",
}  # fmt: skip
_IGNORED = {"tableReference", "maxStaleness", "kind", "etag", "type"}  # BigQuery ignores them too
_STRUCTURE = {"schema", "tableConstraints", "clustering"}
_MOST_RANGES = 10_000


class TableResources:
    """Creates, changes and shows a catalog's tables by their REST resources; may be called from many threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def insert(self, dataset: str, resource: Json) -> Json:
        """Creates a table.

        Raises:
            RefusedError: BigQuery rejects the definition.
        """
        name = str(resource.get("tableReference", {}).get("tableId", ""))
        if not _NAME.fullmatch(name):
            raise invalid(f'Invalid table ID "{name}".')
        self._catalog.check_access(dataset, name)
        self._catalog.dataset(dataset)
        return self.show(self._catalog.add(dataset, name, _definition(resource)))

    def patch(self, dataset: str, name: str, resource: Json, if_match: str | None) -> Json:
        """Changes a table; `if_match` is the etag that it must still have, or None.

        Raises:
            RefusedError: BigQuery rejects the change.
        """
        _check_keys(resource)
        with self._catalog.lock:
            table = self._catalog.table(dataset, name)
            if if_match is not None and if_match != table.etag:
                raise RefusedError(Reason.CONDITION_NOT_MET, "Precondition check failed.")
            old = table.definition
            schema = old.schema
            if resource.get("schema") is not None:
                schema = patched(self._catalog.label(dataset, name), schema, read_columns(resource["schema"]))
            given = _definition({**_structure_of(old), **resource, "schema": {"fields": to_rest(schema)}})
            if (given.key, given.clustering) != (old.key, old.clustering):
                raise RefusedError(Reason.NOT_IMPLEMENTED, "The double cannot change a table's key or clustering")
            table.redefine(replace(old, schema=schema, others={**old.others, **given.others}))
            return self.show(table)

    def list_all(self, dataset: str) -> Json:
        """Returns the short resources of a dataset's tables, by name."""
        tables = [
            {"kind": "bigquery#table", "type": "TABLE", **self._identity(table)}
            for table in self._catalog.tables(dataset)
        ]
        return {"kind": "bigquery#tableList", "totalItems": len(tables), "tables": tables}

    def show(self, table: StoredTable) -> Json:
        """Returns a table's resource as REST shows it."""
        definition = table.definition
        shown: Json = {
            "kind": "bigquery#table",
            "type": "TABLE",
            **self._identity(table),
            **definition.others,
            **_structure_of(definition),
            "etag": table.etag,
            "schema": {"fields": to_rest(definition.schema)},
            "location": self._catalog.datasets[table.dataset]["location"],
            "creationTime": str(milliseconds(table.created)),
            "lastModifiedTime": str(milliseconds(table.created)),
            "numRows": "0",
            "numBytes": str(table.bytes),
        }
        if definition.max_staleness is not None:
            shown["maxStaleness"] = _interval(definition.max_staleness)
        return shown

    def _identity(self, table: StoredTable) -> Json:
        reference = {"projectId": self._catalog.project, "datasetId": table.dataset, "tableId": table.name}
        return {"id": self._catalog.label(table.dataset, table.name), "tableReference": reference}


def _definition(resource: Json) -> Definition:
    _check_keys(resource)
    constraints: dict[str, Any] = resource.get("tableConstraints") or {}
    if constraints.get("foreignKeys"):
        raise RefusedError(Reason.NOT_IMPLEMENTED, "The double does not support foreign keys")
    definition = Definition(
        schema=read_columns(resource.get("schema") or {}),
        key=tuple((constraints.get("primaryKey") or {}).get("columns") or ()),
        clustering=tuple((resource.get("clustering") or {}).get("fields") or ()),
        others={key: value for key, value in resource.items() if key in _KEPT and value is not None},
    )
    check(definition)
    _check_partitions(resource, definition.schema)
    return definition


def _check_keys(resource: Json) -> None:
    if unknown := resource.keys() - _KEPT - _IGNORED - _STRUCTURE:
        raise RefusedError(Reason.NOT_IMPLEMENTED, f"The double does not support a table's property {min(unknown)!r}")


def _structure_of(definition: Definition) -> Json:
    structure: Json = {}
    if definition.key:
        structure["tableConstraints"] = {"primaryKey": {"columns": list(definition.key)}}
    if definition.clustering:
        structure["clustering"] = {"fields": list(definition.clustering)}
    return structure


def _check_partitions(resource: Json, schema: Sequence[ColumnDefinition]) -> None:
    """Raises RefusedError for a partitioning that BigQuery rejects; the double does not partition its rows."""
    time, span = resource.get("timePartitioning"), resource.get("rangePartitioning")
    if resource.get("requirePartitionFilter") and not (time or span):
        raise invalid("require_partition_filter is only supported for partitioned tables.")
    if time and span:
        raise invalid("Cannot set both time and range partitioning.")
    if time and time.get("field"):
        _check_column(time["field"], schema, "DATE", "DATETIME", "TIMESTAMP")
    if span:
        _check_column(span["field"], schema, "INTEGER", "INT64")
        start, end, interval = (int(span["range"][name]) for name in ("start", "end", "interval"))
        if interval < 1 or not 0 < (end - start) / interval <= _MOST_RANGES:
            raise invalid(f"The range of a partition specification has 1 to {_MOST_RANGES} partitions.")


def _check_column(name: str, schema: Sequence[ColumnDefinition], *kinds: str) -> None:
    found = [column for column in schema if column.name.lower() == name.lower()]
    if not found or found[0].type not in kinds or found[0].mode == "REPEATED":
        raise invalid(
            f"The field specified for partitioning cannot be found in the schema, or is none of {kinds}: {name}"
        )


def _interval(span: timedelta) -> str:
    """Formats an interval as BigQuery does: years-months days hours:minutes:seconds."""
    minutes, seconds = divmod(span.seconds, 60)
    return f"0-0 {span.days} {minutes // 60}:{minutes % 60}:{seconds}"
