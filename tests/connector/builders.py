"""Records for tests, each field as Spanner might fill it."""

from dataclasses import replace
from typing import Any

from connector.config.address import DatabaseAddress
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import parse

AT = parse("2026-01-02T03:04:05.123456789Z")
COLUMNS = (
    ColumnType("Id", '{"code":"INT64"}', True, 1),
    ColumnType("Name", '{"code":"STRING"}', False, 2),
)
_INSERT = DataChangeRecord(
    commit_timestamp=AT,
    record_sequence="00000001",
    server_transaction_id="tx",
    is_last_record_in_transaction_in_partition=True,
    table_name="Singers",
    column_types=COLUMNS,
    mods=(Mod('{"Id":"1"}', '{"Name":"a"}', "{}"),),
    mod_type="INSERT",
    value_capture_type="OLD_AND_NEW_VALUES",
    number_of_records_in_transaction=1,
    number_of_partitions_in_transaction=1,
    transaction_tag="",
    is_system_transaction=False,
    read_timestamp=AT + 1_000_000,
    size=100,
)


def record(**changed: Any) -> DataChangeRecord:
    """An insert of one row, with what is given changed."""
    return replace(_INSERT, **changed)


def column(name: str, code: str = "STRING", ordinal: int = 9, *, key: bool = False) -> ColumnType:
    """A column of a simple type."""
    return ColumnType(name, f'{{"code":"{code}"}}', key, ordinal)


def address_of(path: str, host: str | None = None) -> DatabaseAddress:
    """The address of a database by its resource name, at an emulator."""
    project, instance, database = path.split("/")[1::2]
    return DatabaseAddress(project, instance, database, emulator_host=host)
