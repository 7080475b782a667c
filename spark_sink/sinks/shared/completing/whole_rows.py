"""Completes changes that were captured without their whole rows: decides what to read, as of when. Pure.

An UPDATE may lack the columns of its schema that did not change. Of the changes of a key in an epoch, the last one
is completed by the row as of the epoch's last commit. Nothing has changed it in between, so one read a table serves all
keys. The changes before it follow from that backwards: what the next change does not modify was the same before, and
where old values are captured, they say what was there. Only what is unknown then is read as of the change's own commit.

A DELETE that was captured by its key alone gets the row that it removed, likewise: if it is the first change of its key
in an epoch, the row as of just before the epoch's first commit, else the row after the change before it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.schemas import TableSchema
from connector.envelope.envelope import DELETE, SOURCE_METADATA
from connector.envelope.source_metadata import COMPLETED
from spark_sink.sinks.shared.completing.row_keys import Key, Kinds, kinds_of, row_key

PARTIAL = ("OLD_AND_NEW_VALUES", "NEW_VALUES")
"""The value capture types whose updates hold only what changed."""

_KEYS_ALONE = ("NEW_VALUES", "NEW_ROW")
"""The value capture types whose DELETEs hold their keys alone."""

METADATA_WITH_COMPLETED = pa.struct([*SOURCE_METADATA, pa.field(COMPLETED, pa.bool_())])
"""The type of the source metadata of rows that were completed."""

KEPT = pa.schema(
    [
        pa.field("place", pa.int64()),
        pa.field("payload", pa.string()),
        pa.field("before", pa.string()),
        pa.field(COMPLETED, pa.bool_()),
    ]
)
"""The columns of what is kept of completed rows: their places among the rows, and what was changed."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UPDATE, _INSERT = "UPDATE", "INSERT"

Values = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Read:
    """Columns of some rows of a table, as of a timestamp in Unix nanoseconds.

    ``keys`` are the texts of JSON objects with the columns ``key_columns``, in the order of the key.
    """

    table: str
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    keys: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that were read, by key, and the columns that the table does not have as of the timestamp.

    The keys are those of :func:`spark_sink.sinks.shared.completing.row_keys.row_key`.
    """

    rows: Mapping[Key, Values] = field(default_factory=dict)
    gone: AbstractSet[str] = frozenset()


Reader = Callable[[Read], Found]


@dataclass(frozen=True, slots=True)
class WholeRows:
    """The rows of an epoch, each with the field :data:`COMPLETED`, and how many are not complete, by table."""

    rows: pa.RecordBatch
    incomplete: Mapping[str, int]


@dataclass(slots=True)
class _Change:
    """A change of a row. ``after`` is what is known of the row after it, ``old`` of the row before it, if captured."""

    index: int
    mod_type: str
    is_partial: bool
    schema: TableSchema
    at: int
    values: Values
    old: Values
    after: Values = field(default_factory=dict)
    gone: AbstractSet[str] = frozenset()
    """The columns that the table does not have as of the time of its row."""

    @property
    def key(self) -> Key:
        """Its key."""
        return key_of(self.values, self.schema.primary_keys, kinds_of(self.schema))

    @property
    def keys(self) -> str:
        """The text of a JSON object with the columns of its key."""
        return _text({name: self.values[name] for name in self.schema.primary_keys})

    @property
    def removes(self) -> bool:
        """True if it is a DELETE, whose row is the one before it."""
        return self.mod_type == DELETE

    def lacks(self) -> list[str]:
        """The columns of its row that are not known, in the schema's order, without those that are gone."""
        if not self.is_partial:
            return []
        known = {*(self.old if self.removes else self.after), *self.schema.primary_keys, *self.gone}
        return [column.name for column in self.schema.columns if column.name not in known]


def completed(
    rows: pa.RecordBatch,
    schema_of: Callable[[str], TableSchema],
    read: Reader,
    *,
    at_own_commit: bool = False,
    deletes: bool = False,
) -> WholeRows:
    """The rows of an epoch, completed as far as the rows can be read.

    Args:
        rows: all rows of the epoch, or all of some of its tables, in commit order.
        schema_of: returns the schema with a schema key.
        read: reads rows; rows that cannot be read are omitted.
        at_own_commit: whether each row is read as of its own commit, because some changes are not in the epoch.
        deletes: whether DELETEs get the rows that they removed, too.
    """
    is_partial = _are_partial(rows, deletes=deletes)
    whole = ~is_partial.to_numpy(zero_copy_only=False)
    if is_partial.true_count:
        payloads, before = rows.column("payload").to_pylist(), rows.column("before").to_pylist()
        tables = rows.column("object")
        for table in pc.unique(tables.filter(is_partial)).to_pylist():
            places = np.flatnonzero(pc.equal(tables, table).to_numpy(zero_copy_only=False))
            changes = list(_changes(rows.take(pa.array(places)), places.tolist(), schema_of, deletes=deletes))
            _fill(table, changes, read, at_own_commit=at_own_commit)
            for change in changes:
                if change.is_partial:
                    whole[change.index] = not change.lacks()
                    payloads[change.index] = _payload(change)
                    if change.old and whole[change.index]:
                        before[change.index] = payloads[change.index] if change.removes else _old_row(change)
        rows = _replaced(rows, "payload", pa.array(payloads, pa.string()))
        rows = _replaced(rows, "before", pa.array(before, pa.string()))
    incomplete = Counter(rows.column("object").filter(pa.array(~whole)).to_pylist())
    return WholeRows(_marked(rows, pa.array(whole)), incomplete)


def kept(whole: pa.RecordBatch, *, deletes: bool = False) -> pa.RecordBatch | None:
    """The changes of :func:`completed`, which :func:`applied` applies again; None if nothing had to be completed."""
    places = np.flatnonzero(_are_partial(whole, deletes=deletes).to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    changed = whole.take(pa.array(places))
    columns = [pa.array(places), changed.column("payload"), changed.column("before"), are_completed(changed)]
    return pa.RecordBatch.from_arrays(columns, schema=KEPT)


def applied(rows: pa.RecordBatch, changed: pa.RecordBatch) -> WholeRows:
    """The result of :func:`completed` for the same rows, from the part that was :func:`kept`."""
    payloads, before = rows.column("payload").to_pylist(), rows.column("before").to_pylist()
    whole = np.ones(rows.num_rows, np.bool_)
    for place, payload, old, is_whole in zip(*(column.to_pylist() for column in changed.columns), strict=True):
        payloads[place], before[place], whole[place] = payload, old, is_whole
    rows = _replaced(rows, "payload", pa.array(payloads, pa.string()))
    rows = _replaced(rows, "before", pa.array(before, pa.string()))
    incomplete = Counter(rows.column("object").filter(pa.array(~whole)).to_pylist())
    return WholeRows(_marked(rows, pa.array(whole)), incomplete)


def with_mark(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the field :data:`COMPLETED`; those that were not completed have it by how they were captured."""
    return rows if are_completed(rows) is not None else _marked(rows, pc.invert(_are_partial(rows)))


def _are_partial(rows: pa.RecordBatch, *, deletes: bool = False) -> pa.BooleanArray:
    """A mask of the updates without the columns that did not change, and of the deletes of keys alone if asked for."""
    metadata = rows.column("source_metadata")
    mod_types, captures = (pc.struct_field(metadata, name) for name in ("mod_type", "value_capture_type"))
    mask = pc.and_(pc.equal(mod_types, _UPDATE), pc.is_in(captures, value_set=pa.array(PARTIAL)))
    if deletes:
        removed = pc.and_(pc.equal(mod_types, DELETE), pc.is_in(captures, value_set=pa.array(_KEYS_ALONE)))
        mask = pc.or_(mask, removed)
    return mask.fill_null(False)


def _marked(rows: pa.RecordBatch, whole: pa.BooleanArray) -> pa.RecordBatch:
    metadata = rows.column("source_metadata")
    columns = [*(pc.struct_field(metadata, one.name) for one in SOURCE_METADATA), whole]
    return _replaced(rows, "source_metadata", pa.StructArray.from_arrays(columns, fields=list(METADATA_WITH_COMPLETED)))


def are_completed(rows: pa.RecordBatch) -> pa.Array | None:
    """The field :data:`COMPLETED` of rows; None where it is not known."""
    metadata = rows.column("source_metadata")
    known = metadata.type.get_field_index(COMPLETED) >= 0
    return pc.struct_field(metadata, COMPLETED).fill_null(False) if known else None


def _replaced(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _changes(
    rows: pa.RecordBatch, places: Sequence[int], schema_of: Callable[[str], TableSchema], *, deletes: bool
) -> Iterator[_Change]:
    metadata = rows.column("source_metadata")
    schemas = {key: schema_of(key) for key in pc.unique(rows.column("schema_key")).to_pylist()}
    for index, mod_type, is_partial, key, number, payload, before in zip(
        places,
        pc.struct_field(metadata, "mod_type").to_pylist(),
        _are_partial(rows, deletes=deletes).to_pylist(),
        rows.column("schema_key").to_pylist(),
        rows.column("change_sequence_number").to_pylist(),
        rows.column("payload").to_pylist(),
        rows.column("before").to_pylist(),
        strict=True,
    ):
        schema = schemas[key]
        try:
            values, old = _DECODER.decode(payload), _DECODER.decode(before) if before else {}
        except msgspec.MsgspecError:  # a sink rejects it
            continue
        if any(name not in values for name in schema.primary_keys):
            continue  # it cannot be found
        yield _Change(index, mod_type, is_partial, schema, int(number[:16], 16), values, old)


def _fill(table: str, changes: Sequence[_Change], read: Reader, *, at_own_commit: bool) -> None:
    """Fills in what is known of the row after each change."""
    of_key: dict[Key, list[_Change]] = defaultdict(list)
    for change in changes:
        of_key[change.key].append(change)
    for of_row in of_key.values():
        _follow(of_row, {})
    if not at_own_commit:
        last = [of_row[-1] for of_row in of_key.values() if of_row[-1].lacks() and not of_row[-1].removes]
        newest = max((change.at for change in changes), default=0)
        found = _found(table, last, newest, read)
        for change in last:
            _follow(of_key[change.key], found.rows.get(change.key, {}))
            if change.at == newest:  # a column may have been dropped since an earlier commit, or added since
                change.gone = found.gone
    by_commit: dict[int, list[_Change]] = defaultdict(list)
    for change in changes:
        if change.lacks() and not change.removes:
            by_commit[change.at].append(change)
    for at, of_commit in by_commit.items():
        found = _found(table, of_commit, at, read)
        for change in of_commit:
            change.gone = found.gone
            overwritten = _overwritten(change, of_key[change.key])
            row = found.rows.get(change.key, {})
            known = {name: value for name, value in row.items() if name not in overwritten}
            change.after = {**known, **change.after}
    _fill_removed(table, of_key, read, at_own_commit=at_own_commit)


def _fill_removed(table: str, of_key: Mapping[Key, Sequence[_Change]], read: Reader, *, at_own_commit: bool) -> None:
    """Fills in what is known of the rows that DELETEs have removed."""
    removed = [change for of_row in of_key.values() for change in of_row if change.removes and change.is_partial]
    if not at_own_commit:
        oldest = min((change.at for of_row in of_key.values() for change in of_row), default=0)
        first = [change for change in removed if of_key[change.key][0] is change]
        found = _found(table, first, oldest - 1, read)
        for change in first:
            change.old = {**found.rows.get(change.key, {}), **change.old}
            if change.at == oldest:  # a column may have been added since, or dropped
                change.gone = found.gone
        for of_row in of_key.values():
            for previous, change in pairwise(of_row):
                if change.removes and change.is_partial:
                    change.old = {**previous.after, **change.old}
    by_commit: dict[int, list[_Change]] = defaultdict(list)
    for change in removed:
        if change.lacks():
            by_commit[change.at].append(change)
    for at, of_commit in by_commit.items():
        found = _found(table, of_commit, at - 1, read)
        for change in of_commit:
            change.gone = found.gone
            change.old = {**found.rows.get(change.key, {}), **_set_before(change, of_key[change.key]), **change.old}


def _set_before(change: _Change, of_row: Sequence[_Change]) -> Values:
    """The values that earlier changes of the row in the same commit have set."""
    earlier = takewhile(lambda one: one is not change, of_row)
    return {name: value for one in earlier if one.at == change.at for name, value in one.values.items()}


def _overwritten(change: _Change, of_row: Sequence[_Change]) -> frozenset[str]:
    """The columns that a later change of the row in the same commit modifies: no read shows what they were before."""
    later = of_row[next(place for place, one in enumerate(of_row) if one is change) + 1 :]
    return frozenset(name for one in later if one.at == change.at for name in one.values)


def _found(table: str, changes: Sequence[_Change], at: int, read: Reader) -> Found:
    """Reads the columns that changes lack, all at once."""
    if not changes:
        return Found()
    columns = dict.fromkeys(name for change in changes for name in change.lacks())
    key_columns = changes[-1].schema.primary_keys
    keys = dict.fromkeys(change.keys for change in changes)
    return read(Read(table, tuple(columns), key_columns, tuple(keys), at))


def _follow(of_row: Sequence[_Change], read: Values) -> None:
    """Sets each change's row after it, as far as it follows from the columns read after the last change."""
    following: _Change | None = None
    for change in reversed(of_row):
        known = read if following is None else _before(following)
        change.after = {**known, **change.values} if change.mod_type != DELETE else {}
        following = change


def _before(change: _Change) -> Values:
    """The known values of a row before a change."""
    if change.mod_type == _INSERT:
        return {}
    same = {name: value for name, value in change.after.items() if name not in change.values}
    return {**same, **change.old}


def _payload(change: _Change) -> str:
    """The row of a change, as far as it is known."""
    return _text(_in_order(change, change.old if change.removes else change.after, change.values))


def _old_row(change: _Change) -> str:
    """The row before an update whose old values were captured."""
    return _text(_in_order(change, change.after, change.old))


def _in_order(change: _Change, known: Values, captured: Values) -> Values:
    """Columns in the order of the schema, without those that it does not have, unless they were captured."""
    values = known | captured
    ordered = {column.name: values[column.name] for column in change.schema.columns if column.name in values}
    return ordered | captured


def key_of(values: Mapping[str, msgspec.Raw], columns: Sequence[str], kinds: Kinds) -> Key:
    """The key of a row, equal where Spanner's are."""
    return row_key({name: orjson.loads(bytes(values[name])) for name in columns}, columns, kinds)


def decoded(text: str) -> Values:
    """The members of a JSON object, each as its bytes."""
    return _DECODER.decode(text)


def _text(values: Mapping[str, msgspec.Raw]) -> str:
    return _ENCODER.encode(values).decode()
