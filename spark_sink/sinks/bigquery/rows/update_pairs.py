"""The two rows of an update in an appended table: the row that it replaced, and the one that it left. Pure.

Datastream calls them UPDATE-DELETE and UPDATE-INSERT
(https://cloud.google.com/datastream/docs/destination-bigquery#append-only). The first one is the row after the update,
with the old values in the columns that have changed. Both have the update's change sequence number with a section more,
by which the first precedes the second, and both are between the changes before and after. The ``uuid`` of the first is
that of the update with its last digit inverted.
"""

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.changes import Int64s

UPDATE_DELETE = "UPDATE-DELETE"
"""The type of the change of a replaced row."""

OLD_VALUES = ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
"""The value capture types whose updates have old values
(https://cloud.google.com/spanner/docs/change-streams#value-capture-type)."""

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REPLACED, _LEFT, _SLASH = (pa.scalar(text, pa.string()) for text in ("0", "1", "/"))


def paired(events: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """Events with two rows for each update that has old values.

    Returns:
        The rows in their order, and the index of each row's event.
    """
    source = events.column("source_metadata")
    is_update = pc.equal(pc.struct_field(source, "mod_type"), "UPDATE").fill_null(False)
    pairs = pc.and_(is_update, events.column("before").is_valid()).to_numpy(zero_copy_only=False)
    if not pairs.any():
        return events, np.arange(events.num_rows)
    of_event = np.repeat(np.arange(events.num_rows), 1 + pairs)
    is_first = np.zeros(len(of_event), np.bool_)
    is_first[np.flatnonzero(pairs) + np.arange(np.count_nonzero(pairs))] = True
    replaced, left = pa.array(is_first), pa.array(np.roll(is_first, 1))
    before = events.filter(pa.array(pairs))
    rows = events.take(pa.array(of_event))
    number = rows.column("change_sequence_number")
    section = pc.if_else(replaced, _REPLACED, _LEFT)
    either = pc.or_(replaced, left)
    changed = {
        "payload": pc.replace_with_mask(rows.column("payload"), replaced, pa.array(_replaced(before), pa.string())),
        "uuid": pc.replace_with_mask(rows.column("uuid"), replaced, pa.array(_inverted(before), pa.string())),
        "change_sequence_number": pc.if_else(either, pc.binary_join_element_wise(number, section, _SLASH), number),
        "source_metadata": _of_type(rows.column("source_metadata"), replaced),
    }
    for name, values in changed.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows, of_event


def _replaced(updates: pa.RecordBatch) -> Iterable[str]:
    """The payloads of the rows before updates; an unreadable payload as it is, because it is rejected elsewhere."""
    both = zip(updates.column("payload").to_pylist(), updates.column("before").to_pylist(), strict=True)
    for payload, before in both:
        try:
            yield msgspec.json.encode({**_DECODER.decode(payload), **_DECODER.decode(before)}).decode()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            yield payload


def _inverted(updates: pa.RecordBatch) -> Iterable[str | None]:
    for uuid in updates.column("uuid").to_pylist():
        yield uuid and f"{uuid[:-1]}{15 - int(uuid[-1], 16):x}"


def _of_type(source: pa.StructArray, replaced: pa.BooleanArray) -> pa.StructArray:
    """The metadata of the source, with the type of replaced rows."""
    names = [field.name for field in source.type]
    values = dict(zip(names, source.flatten(), strict=True))
    values["mod_type"] = pc.if_else(replaced, UPDATE_DELETE, values["mod_type"])
    return pa.StructArray.from_arrays([values[name] for name in names], fields=list(source.type))
