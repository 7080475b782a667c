"""An event that cannot be written is named: its table, column, commit and transaction, and no value of it."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from connector.api.epochs import EventReader
from connector.core.changes import Changes
from connector.core.records import ColumnType, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.events import EventWriter
from connector.envelope.opencdc import OpenCdcWriter
from connector.errors import EventError
from tests.connector.builders import AT, column, record

SECRET = "Xq7secret"
TYPES = (
    column("Id", "INT64", 1, key=True),
    ColumnType("Info", '{"code":"JSON"}', is_primary_key=False, ordinal_position=2),
    column("Age", "INT64", 3),
)
Written = Callable[[Callable[[str], TableSchema], pa.RecordBatch], Iterator[object]]


def epoch(new_values: str) -> tuple[Callable[[str], TableSchema], pa.RecordBatch]:
    """Rows of an epoch, of which the second has these values."""
    some = (
        record(),
        record(
            commit_timestamp=AT + 1000,
            server_transaction_id="tx-7",
            table_name="Notes",
            column_types=TYPES,
            mods=(Mod('{"Id":"1"}', new_values, "{}"),),
        ),
        record(commit_timestamp=AT + 2000),
    )
    registry = SchemaRegistry()
    builder = EnvelopeBuilder(Source("p", "i", "d", "Everything", "d"), stream_name=None, read_method="spanner-cdc")
    return registry.by_key, builder.build(Changes.of(some), registry, 1)


@pytest.mark.parametrize(
    "written",
    [
        lambda schema_of, rows: EventWriter(schema_of).lines(rows),
        lambda schema_of, rows: OpenCdcWriter(schema_of).lines(rows),
        lambda schema_of, rows: EventReader(schema_of).transactions([rows]),
    ],
    ids=["datastream", "opencdc", "transactions"],
)
@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (f'{{"Info":"{SECRET}","Age":"7"}}', "column Info: a value of type JSON is not JSON"),
        (f'{{"Info":"[]","Age":"{SECRET}"}}', "column Age: a value of an integer type is not an integer"),
    ],
)
def test_an_event_that_cannot_be_written_is_named_without_its_values(written: Written, values: str, fault: str) -> None:
    with pytest.raises(EventError) as caught:
        list(written(*epoch(values)))
    said = str(caught.value)
    where = f"(committed at {format_rfc3339(AT + 1000)}, server_transaction_id tx-7"
    assert said.startswith(f"table Notes: {fault} {where}")
    assert "source.tables.exclude" in said, "what to do"
    assert SECRET not in said
    assert caught.value.reason == fault


def test_the_change_stream_is_named_too() -> None:
    schema_of, rows = epoch(f'{{"Info":"{SECRET}"}}')
    with pytest.raises(EventError, match="change stream Everything"):
        list(EventWriter(schema_of).lines(rows))
