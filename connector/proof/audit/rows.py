"""The rows of epochs as columns that two reads of the same records have in common. Pure.

Fields that may differ between two reads are omitted: the time of receipt, the names from the configuration, the schema
key (it depends on what was known of the table), and the order of a key's columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.changes import Int64s, integers
from connector.core.filters import RecordFilter
from connector.core.value_texts import Bools
from connector.envelope.envelope import SCHEMA, SOURCE_METADATA

JSON_FIELDS = ("payload", "before")
"""Fields that hold the text of a JSON object: texts that differ may hold the same values."""

_KEYS = "primary_keys"
_TOP = ("object", "uuid", "change_sequence_number", *JSON_FIELDS)
_METADATA = tuple(name for name in SOURCE_METADATA.names if name != _KEYS)

FIELDS = (*_TOP, "source_timestamp", "sort_keys", *_METADATA, _KEYS)
"""The fields that are compared."""

_SEPARATOR = pa.scalar("\0", pa.string())


def _flat(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    metadata = dict(zip(SOURCE_METADATA.names, batch.column("source_metadata").flatten(), strict=True))
    return {
        **{name: batch.column(name) for name in _TOP},
        "source_timestamp": batch.column("source_timestamp").cast(pa.int64()),
        "sort_keys": pc.binary_join(batch.column("sort_keys"), _SEPARATOR),
        **{name: metadata[name] for name in _METADATA},
        _KEYS: _sorted_names(metadata[_KEYS]),
        "epoch": batch.column("epoch"),
        "time": pc.list_element(batch.column("sort_keys"), 1).cast(pa.int64()),
    }


def _sorted_names(names: pa.ListArray) -> pa.Array:
    """Each list as one text, its names in alphabetical order."""
    encoded = pc.binary_join(names, _SEPARATOR).dictionary_encode()
    different = [",".join(sorted(text.split("\0"))) for text in encoded.dictionary.to_pylist()]
    return pa.array(different, pa.string()).take(encoded.indices)


_EMPTY = pa.RecordBatch.from_pydict(_flat(pa.RecordBatch.from_pylist([], SCHEMA)))


class NotComparableError(ValueError):
    """These are not the rows of an epoch; the message has no value of a row."""


@dataclass(frozen=True)
class ComparableRows:
    """Rows with the columns :data:`FIELDS`, and beside them their epoch.

    Attributes:
        times: commit timestamps, nanoseconds since 1970, ascending.
    """

    batch: pa.RecordBatch = field(repr=False)
    times: Int64s = field(repr=False)

    @classmethod
    def none(cls) -> "ComparableRows":
        """No rows."""
        return cls(_EMPTY, np.empty(0, np.int64))

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> tuple["ComparableRows", bool]:
        """The rows of a segment or of an epoch that was read, and whether they were in the order of their timestamps.

        If they were not, they are put into that order.

        Raises:
            NotComparableError: these are not the columns of an epoch, or a row has no commit timestamp.
            pa.ArrowInvalid: a commit timestamp is not a number.
        """
        if not batch.schema.equals(SCHEMA):
            raise NotComparableError("its columns are not those of an epoch")
        flat = _flat(batch)
        if flat["time"].null_count:
            raise NotComparableError("a row has no commit timestamp")
        return cls._in_order([pa.RecordBatch.from_pydict(flat)])

    @classmethod
    def parts(cls, batches: Iterable[pa.RecordBatch]) -> tuple[tuple["ComparableRows", ...], bool]:
        """The rows of an epoch in parts, one after the other, and whether they were in the order of their timestamps.

        If they were not, they are put into that order. Parts need half the memory of the whole.

        Raises:
            NotComparableError, pa.ArrowInvalid: as :meth:`of` does.
        """
        found = [cls.of(batch) for batch in batches]
        parts = tuple(part for part, _ in found if len(part))
        if all(in_order for _, in_order in found) and all(
            before.times[-1] <= after.times[0] for before, after in pairwise(parts)
        ):
            return parts, True
        return (cls.joined(parts),), False

    @classmethod
    def joined(cls, parts: Iterable["ComparableRows"]) -> "ComparableRows":
        """All rows, in the order of their timestamps."""
        return cls._in_order([part.batch for part in parts if len(part)])[0]

    @classmethod
    def _in_order(cls, batches: list[pa.RecordBatch]) -> tuple["ComparableRows", bool]:
        if not sum(batch.num_rows for batch in batches):
            return cls.none(), True
        whole = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        times = integers(whole.column("time"))
        if not bool((times[1:] < times[:-1]).any()):
            return cls(whole, times), True
        order = np.argsort(times, kind="stable")
        return cls(whole.take(pa.array(order)), times[order]), False

    def __len__(self) -> int:
        return len(self.times)

    def column(self, name: str) -> pa.Array:
        """A column."""
        return self.batch.column(name)

    def between(self, low: int, high: int) -> "ComparableRows":
        """The rows committed in (low, high]; nothing is copied."""
        first, last = np.searchsorted(self.times, (low, high), "right")
        if first == 0 and last == len(self):
            return self
        return ComparableRows(self.batch.slice(first, max(last - first, 0)), self.times[first : max(first, last)])

    def without(self, low: int, high: int) -> "ComparableRows":
        """The rows that were not committed in (low, high]."""
        return self.kept((self.times <= low) | (self.times > high))

    def kept(self, mask: Bools) -> "ComparableRows":
        """The rows for which ``mask`` is true."""
        return self if mask.all() else ComparableRows(self.batch.filter(pa.array(mask)), self.times[mask])

    def filtered(self, keeps: RecordFilter) -> "ComparableRows":
        """The rows whose table and transaction tag the filter keeps."""
        tables, tags = self.column("object"), self.column("transaction_tag")
        return self.kept(_mask(tables, keeps.keeps) & _mask(tags, keeps.keeps_tag))

    def rows(self, indexes: Int64s, fields: Sequence[str] = ()) -> list[dict[str, object]]:
        """Some rows, by field; all fields, or those that are named."""
        batch = self.batch.select(list(fields)) if fields else self.batch
        rows: list[dict[str, object]] = batch.take(pa.array(indexes)).to_pylist()
        return rows

    @property
    def transactions(self) -> int:
        """The number of transactions; the rows of each must follow each other."""
        return int(self.firsts.sum())

    @property
    def firsts(self) -> Bools:
        """A mask that is true for the first row of each transaction."""
        if not len(self):
            return np.empty(0, np.bool_)
        ids = self.column("server_transaction_id").fill_null("")
        other = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False).astype(np.bool_)
        return np.concatenate(([True], other | (np.diff(self.times) != 0)))


def _mask(texts: pa.Array, keeps: Callable[[str], bool]) -> Bools:
    encoded = texts.fill_null("").dictionary_encode()
    mask = np.array([keeps(text) for text in encoded.dictionary.to_pylist()], np.bool_)
    return mask[integers(encoded.indices)]
