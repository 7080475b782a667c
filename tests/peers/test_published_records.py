"""Both decoders read each record of :mod:`tests.peers.published_records` correctly."""

from base64 import b64encode
from dataclasses import replace

import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Changes
from connector.core.records import DataChangeRecord, Record
from tests.peers.published_records import PUBLISHED, READ, Published
from tests.property.decoding.framed import field
from tests.property.decoding.two_ways import MUTABLE_SIDE, SIDES, Side, fast_items, outcome


def side_of(published: Published) -> Side:
    return {**SIDES, "mutable": MUTABLE_SIDE}[published.form]


def row_of(published: Published) -> bytes:
    match published.form:
        case "googlesql":
            value = ParseDict(published.row, Value())
        case "postgresql":
            value = Value(string_value=published.row)
        case _:
            message = ParseDict(published.row, types.ChangeStreamRecord.pb()())
            value = Value(string_value=b64encode(message.SerializeToString()).decode())
    encoded: bytes = value.SerializeToString()
    return encoded


def read(record: Record | str) -> Record | str:
    return replace(record, read_timestamp=READ) if isinstance(record, DataChangeRecord) else record


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: f"{one.form}: {one.name}")
def test_both_decoders_read_a_published_record_correctly(published: Published) -> None:
    side = side_of(published)
    lists = [[field(1, side.metadata)], [field(2, row_of(published))]]
    (walked,) = outcome(side.plain(), lists)[-1]
    assert read(walked) == published.record
    (found,) = fast_items(side, lists)
    if isinstance(found, Changes):
        (fast,) = found.records()
        assert replace(fast, read_timestamp=READ, size=0) == published.record
    else:
        assert read(found if not isinstance(found, DataChangeRecord) else replace(found, size=0)) == published.record


def are_columns(published: Published) -> bool:
    side = side_of(published)
    (found,) = fast_items(side, [[field(1, side.metadata)], [field(2, row_of(published))]])
    return isinstance(found, Changes)


def test_most_published_changes_are_read_as_columns() -> None:
    """The others have NULLs in GoogleSQL, or are not data change records."""
    fast = {f"{one.form}: {one.name}" for one in PUBLISHED if are_columns(one)}
    changes = {f"{one.form}: {one.name}" for one in PUBLISHED if isinstance(one.record, DataChangeRecord)}
    assert changes - fast <= {name for name in changes if name.endswith("NULLs")}
