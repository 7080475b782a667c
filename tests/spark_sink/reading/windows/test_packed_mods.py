"""Mods that are packed and unpacked again are the same, wherever in an array they lie."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import COLUMNS
from spark_sink.reading.windows.packed_mods import FIELDS, packed, unpacked
from tests.property.effort import effort

TYPE = COLUMNS.field("mods").type
texts = st.none() | st.text(max_size=5)
mods = st.fixed_dictionaries({field.name: texts for field in TYPE.value_type})
lists = st.lists(st.lists(mods, max_size=4), max_size=12)


@effort(100)
@given(lists=lists, data=st.data())
def test_any_part_of_packed_mods_unpacks_to_the_mods_it_was_made_of(
    lists: list[list[dict[str, str | None]]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(lists)))
    end = data.draw(st.integers(first, len(lists)))
    whole = pa.array(lists, TYPE)
    assert unpacked(packed(whole.slice(first, end - first))).to_pylist() == lists[first:end]
    rows = pa.RecordBatch.from_arrays(packed(whole), schema=pa.schema(FIELDS)).slice(first, end - first)
    assert unpacked(list(rows.columns)).to_pylist() == lists[first:end]
