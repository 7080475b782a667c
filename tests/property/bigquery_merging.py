"""Histories of a table's changes, merged as the BigQuery sink does it, and the rows that have to result."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import ColumnType, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.merging.statements import DELETED, PRESENT, REPLACED
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from tests.connector.builders import AT, record

Row = dict[str, Any]
Key = tuple[Any, ...]

STRING, INT64 = '{"code":"STRING"}', '{"code":"INT64"}'
TEXTS = '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'
KEYS = (ColumnType("Region", STRING, True, 1), ColumnType("Id", INT64, True, 2))
OTHERS = (
    ColumnType("Name", STRING, False, 3),
    ColumnType("Born", INT64, False, 4),
    ColumnType("Tags", TEXTS, False, 5),
)
SCHEMA = TableSchema.of("Singers", (*KEYS, *OTHERS), ["Id", "Region"])
TABLE = bigquery_table(SCHEMA, BigQueryTableOptions("ds", "merge-load"))
SEQUENCE = "change_sequence_number"
SOURCE = Source("p", "i", "d", "Everything", "d")


@dataclass(frozen=True)
class Change:
    """A change of the source: what it names of a row, NULLs among it."""

    mod_type: str
    key: tuple[str, str]
    values: Row


@dataclass(frozen=True)
class History:
    """Changes in the order of their commits, cut into the parts of micro-batches."""

    batches: tuple[tuple[tuple[Change, ...], ...], ...]

    @property
    def changes(self) -> list[Change]:
        return [change for batch in self.batches for part in batch for change in part]


VALUES: dict[str, st.SearchStrategy[object]] = {
    "Name": st.sampled_from([None, "", "a", "b\n\"\\'€"]),
    "Born": st.sampled_from([None, "0", "-9223372036854775808"]),
    "Tags": st.sampled_from([None, [], ["a"], ["b", ""]]),
}
KEY = st.tuples(st.sampled_from(["", "eu"]), st.sampled_from(["1", "-2"]))
CHANGE = st.builds(
    Change,
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]),
    KEY,
    st.fixed_dictionaries({}, optional=VALUES) | st.fixed_dictionaries(VALUES),
)
HISTORIES = st.lists(
    st.lists(st.lists(CHANGE, max_size=6).map(tuple), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4
).map(lambda batches: History(tuple(batches)))


# The source's table


def replayed(changes: Iterable[Change]) -> dict[Key, Row]:
    """The table that changes leave: an INSERT begins anew, an UPDATE changes what it names, of no row or of one."""
    rows: dict[Key, Row] = {}
    for change in changes:
        if change.mod_type == "DELETE":
            rows.pop(change.key, None)
            continue
        known = rows.get(change.key, {}) if change.mod_type == "UPDATE" else {}
        rows[change.key] = {"Name": None, "Born": None, "Tags": None, **known, **change.values}
    return {key: {**row, "Tags": row["Tags"] or []} for key, row in rows.items()}  # BigQuery has no NULL array


# BigQuery's table


class Merged:
    """A table that lines are merged into, as the statement says it."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.numbers: dict[Key, str] = {}

    def merge(self, lines: bytes) -> None:
        found = [json.loads(line) for line in lines.splitlines()]
        keys = [self._key(line) for line in found]
        assert len(set(keys)) == len(keys), "BigQuery refuses a MERGE in which two lines are of one row"
        for key, line in zip(keys, found, strict=True):
            self._line(key, line)

    def _line(self, key: Key, line: Row) -> None:
        number = line["datastream_metadata"][SEQUENCE]
        if key not in self.rows:
            if not line[DELETED]:
                self.rows[key] = {name: self._value(line, name) for name in VALUES}
                self.numbers[key] = number
            return
        if not number > self.numbers[key]:
            return
        if line[DELETED]:
            del self.rows[key], self.numbers[key]
            return
        present = dict(zip((column.name for column in TABLE.columns), line[PRESENT], strict=True))
        for name in VALUES:
            if line[REPLACED] or present[name] == "1":
                self.rows[key][name] = self._value(line, name)
        self.numbers[key] = number

    @staticmethod
    def _key(line: Row) -> Key:
        return (line["Region"], line["Id"])

    @staticmethod
    def _value(line: Row, name: str) -> object:
        """A load takes what is missing for NULL, and for an empty array."""
        return line.get(name, [] if name == "Tags" else None)


def lines_of(merger: RowMerger, rows: pa.RecordBatch) -> bytes:
    assert merger.add(rows) == []
    return merger.lines()


def rows_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """Events; each three have one commit timestamp, so that the record sequence counts, too."""
    return enveloped(
        *(
            record(
                commit_timestamp=AT + number // 3,
                record_sequence=f"{number % 3:08d}",
                server_transaction_id=f"t{number}",
                column_types=(*KEYS, *(column for column in OTHERS if column.name in change.values)),
                mods=(mod_of(change),),
                mod_type=change.mod_type,
            )
            for number, change in enumerate(changes)
        )
    )


def mod_of(change: Change) -> Mod:
    keys = json.dumps({"Region": change.key[0], "Id": change.key[1]})
    values = json.dumps(change.values)
    return Mod(keys, "{}", values) if change.mod_type == "DELETE" else Mod(keys, values, "{}")


def enveloped(*records: Any, schema: TableSchema = SCHEMA) -> pa.RecordBatch:
    builder = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")
    return builder.build(Changes.of(records), SchemaRegistry([schema]), 1)


def parts_of(history: History) -> list[list[bytes]]:
    """The lines of each micro-batch's parts; a part without changes brings nothing."""
    rows = rows_of(history.changes) if history.changes else None
    first = 0
    out: list[list[bytes]] = []
    for batch in history.batches:
        out.append([])
        for part in filter(None, batch):
            assert rows is not None
            out[-1].append(lines_of(RowMerger(TABLE), rows.slice(first, len(part))))
            first += len(part)
    return out


# A backfill beside the changes


def snapshot_of(rows: Mapping[Key, Row], timestamp: int) -> pa.RecordBatch:
    """The events of a backfill that read these rows as of a timestamp."""
    keys = [json.dumps({"Id": key[1], "Region": key[0]}) for key in rows]
    return snapshot_events(keys, [json.dumps(row) for row in rows.values()], timestamp, SCHEMA)


def snapshot_events(keys: list[str], values: list[str], timestamp: int, schema: TableSchema) -> pa.RecordBatch:
    """The events of a backfill, by the JSON of keys and of other values."""
    envelope = SnapshotEnvelope(SOURCE, stream_name=None, timestamp=timestamp)
    return envelope.build(pa.array(keys, pa.string()), pa.array(values, pa.string()), schema, schema.key, 1, AT)


class Backfilled(Merged):
    """A table that lines of changes and of a backfill are merged into, as the statements say it."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[Key, str, bool, frozenset[str]]] = []

    def note(self, lines: bytes) -> None:
        """Notes changes that are to be merged."""
        for line in map(json.loads, lines.splitlines()):
            named = frozenset(
                column.name
                for column, digit in zip(TABLE.columns, line[PRESENT], strict=True)
                if digit == "1" and not column.is_key
            )
            number = line["datastream_metadata"][SEQUENCE]
            self.notes.append((self._key(line), number, line[DELETED] or line[REPLACED], named))

    def backfill(self, lines: bytes) -> None:
        """Merges rows of a backfill."""
        for line in map(json.loads, lines.splitlines()):
            key, number = self._key(line), line["datastream_metadata"][SEQUENCE]
            later = [note for note in self.notes if note[0] == key and note[1][:16] > number[:16]]
            is_decided = any(whole for _, _, whole, _ in later)
            kept = frozenset[str]().union(*(named for _, _, _, named in later))
            if key not in self.rows:
                if not is_decided:
                    self.rows[key] = {name: self._value(line, name) for name in VALUES}
                    self.numbers[key] = number
            elif number[:16] >= self.numbers[key][:16]:
                self.rows[key] = {name: self._value(line, name) for name in VALUES}
                self.numbers[key] = max(number, self.numbers[key])
            elif later and not is_decided:
                self.rows[key] |= {name: self._value(line, name) for name in VALUES if name not in kept}
