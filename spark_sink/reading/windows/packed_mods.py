"""A record's mods as four byte strings, which Spark copies whole: it copies lists of structs of strings field by field.

``keys``, ``new_values`` and ``old_values`` are the texts of all mods of a record, joined. ``lengths`` has three numbers
of 32 bits for each mod, the lengths of its texts in that order; -1 - length stands for a text that is missing.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.core.changes import MOD, mod_lists

TEXTS = tuple(field.name for field in MOD)

FIELDS = [*(pa.field(name, pa.binary()) for name in TEXTS), pa.field("lengths", pa.binary())]
"""The columns that stand for ``mods``."""

_EACH = 4 * len(TEXTS)
_Int32s = npt.NDArray[np.int32]


def packed(mods: pa.ListArray) -> list[pa.Array]:
    """The columns of :data:`FIELDS`; texts are not copied."""
    ends = mods.offsets.to_numpy()
    first, last = int(ends[0]), int(ends[-1])
    texts = mods.values.slice(first, last - first)
    lengths = np.empty((last - first, len(TEXTS)), np.int32)
    columns = []
    for at in range(len(TEXTS)):
        text = texts.field(at)
        bounds, data = _bounds(text), text.buffers()[2]
        lengths[:, at] = np.diff(bounds)
        if text.null_count:
            missing = text.is_null().to_numpy(zero_copy_only=False)
            lengths[missing, at] = -1 - lengths[missing, at]
        columns.append(_bytes(bounds[ends - first], data))
    return [*columns, _bytes((ends - first) * _EACH, pa.py_buffer(lengths))]


def unpacked(columns: list[pa.Array]) -> pa.ListArray:
    """The mods of columns of :data:`FIELDS`; texts are not copied."""
    *texts, packed_lengths = columns
    bounds = _bounds(packed_lengths)
    data = packed_lengths.buffers()[2]
    lengths = np.frombuffer(data or b"", np.int32)[bounds[0] // 4 : bounds[-1] // 4].reshape(-1, len(TEXTS))
    arrays = []
    for at, text in enumerate(texts):
        of_text = lengths[:, at]
        missing = of_text < 0
        offsets = np.empty(len(of_text) + 1, np.int32)
        offsets[0] = _bounds(text)[0]
        np.cumsum(np.where(missing, -1 - of_text, of_text), out=offsets[1:])
        offsets[1:] += offsets[0]
        valid = pa.array(~missing).buffers()[1] if missing.any() else None
        buffers = [valid, pa.py_buffer(offsets), text.buffers()[2] or pa.py_buffer(b"")]
        arrays.append(pa.Array.from_buffers(pa.string(), len(of_text), buffers))
    return mod_lists(np.diff(bounds).astype(np.int64) // _EACH, *arrays)


def _bounds(array: pa.Array) -> _Int32s:
    """The offset at which each byte string of an array begins in its data, and that at which the last one ends."""
    if not len(array):
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _bytes(bounds: _Int32s, data: pa.Buffer | None) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), data or pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
