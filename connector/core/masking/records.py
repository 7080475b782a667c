"""Applies the rules for columns to data change records, as they are decoded. Pure."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from connector.core.byte_columns import offsets_of
from connector.core.changes import COLUMNS, Changes, Int64s, RecordSchema, integers, mod_lists
from connector.core.masking.masks import ColumnMask, UnlistedColumnError
from connector.core.masking.rules import ColumnRules
from connector.core.records import ColumnType, DataChangeRecord, Mod

_KEPT = 10_000
"""Lists of columns whose masks are kept."""


class RecordMasking:
    """Applies rules to records; the same list of columns gets the same list afterwards, as decoders return it.

    Args:
        rules: for the columns.
    """

    def __init__(self, rules: ColumnRules) -> None:
        self._rules = rules
        self._masks: dict[tuple[str, int], tuple[Sequence[ColumnType], ColumnMask | None]] = {}
        """By table and identity of the list of columns, which is kept with it so that the identity stays its own."""
        self._schemas: dict[int, tuple[RecordSchema, RecordSchema]] = {}

    def record(self, record: DataChangeRecord) -> DataChangeRecord:
        """A record after the rules.

        Raises:
            ConfigurationError: the rules exclude a column of the key, or contradict each other.
            UnlistedColumnError: a column of a mod is not listed in ``column_types``.
            ValueError: a payload is not a JSON object.
        """
        mask = self._mask(record.table_name, record.column_types)
        if mask is None:
            return record
        mods = tuple(
            Mod(mask.payload(mod.keys), mask.payload(mod.new_values), mask.payload(mod.old_values))
            for mod in record.mods
        )
        size = record.size - _length(record.mods) + _length(mods)
        return replace(record, column_types=mask.columns, mods=mods, size=size)

    def changes(self, changes: Changes) -> Changes:
        """Records as columns after the rules; see :meth:`record` for errors."""
        masks = [self._mask(schema.table_name, schema.column_types) for schema in changes.record_schemas]
        if not any(masks):
            return changes
        counts = changes.mod_counts
        of_mods = np.repeat(integers(changes.column("record_schema")), counts).tolist()
        masked, grown = [], np.zeros(len(of_mods), np.int64)
        for texts in changes.column("mods").flatten().flatten():
            found = pa.array(
                [
                    text if (mask := masks[schema]) is None else mask.payload(text)
                    for text, schema in zip(texts.to_pylist(), of_mods, strict=True)
                ],
                pa.string(),
            )
            grown += _lengths(found) - _lengths(texts)
            masked.append(found)
        sizes = changes.sizes + np.bincount(np.repeat(np.arange(len(counts)), counts), grown, len(counts)).astype(int)
        batch = changes.batch
        for name, array in (("mods", mod_lists(counts, *masked)), ("size", pa.array(sizes, pa.int64()))):
            at = COLUMNS.get_field_index(name)
            batch = batch.set_column(at, COLUMNS.field(at), array)
        named = zip(changes.record_schemas, masks, strict=True)
        return Changes(batch, tuple(self._schema(schema, mask) for schema, mask in named))

    def _mask(self, table: str, columns: tuple[ColumnType, ...]) -> ColumnMask | None:
        known = self._masks.get((table, id(columns)))
        if known is None:
            mask = self._rules.mask(table, columns)
            if mask is not None and not columns:
                raise UnlistedColumnError(f"a record of table {table} lists no columns")
            if len(self._masks) >= _KEPT:
                self._masks.clear()
            known = self._masks[table, id(columns)] = (columns, mask)
        return known[1]

    def _schema(self, schema: RecordSchema, mask: ColumnMask | None) -> RecordSchema:
        if mask is None:
            return schema
        known = self._schemas.get(id(schema))
        if known is None:
            if len(self._schemas) >= _KEPT:
                self._schemas.clear()
            known = self._schemas[id(schema)] = (schema, RecordSchema(schema.table_name, mask.columns))
        return known[1]


def _length(mods: Sequence[Mod]) -> int:
    return sum(len(mod.keys) + len(mod.new_values) + len(mod.old_values) for mod in mods)


def _lengths(texts: pa.Array) -> Int64s:
    return np.diff(offsets_of(texts)).astype(np.int64)
