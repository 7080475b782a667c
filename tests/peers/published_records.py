"""Records that Spanner's documentation and the tests of Apache Beam and Debezium show, and what each means.

Sources, by the name of the entry: ``page``: https://cloud.google.com/spanner/docs/change-streams/details; ``beam``:
apache/beam, ChangeStreamRecordMapper and its test; ``debezium``: debezium/debezium-connector-spanner, its
ChangeStreamRecordMapperTest, TestJsonMapper and PlacementMoveInMoveOutTest. Structure and values are theirs; the
rows are written here. A row is JSON: in GoogleSQL lists are arrays and structs, in the PostgreSQL dialect it is the
document, in the mutable mode it is the ChangeStreamRecord in protobuf's JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.timestamps import parse

READ = 7


@dataclass(frozen=True)
class Published:
    """A row, its form (``googlesql``, ``postgresql`` or ``mutable``), and the record that it means."""

    name: str
    form: str
    row: Any
    record: Record


def _column(name: str, code: str, position: int, *, key: bool = False) -> ColumnType:
    return ColumnType(name, f'{{"code":"{code}"}}', key, position)


def _data(**fields: Any) -> DataChangeRecord:
    return DataChangeRecord(**{**_ACCOUNT, **fields}, read_timestamp=READ, size=0)


_ID, _UPDATED = _column("AccountId", "STRING", 1, key=True), _column("LastUpdate", "TIMESTAMP", 2)
_BALANCE = _column("Balance", "INT", 3)
_ACCOUNT: Mapping[str, Any] = {
    "commit_timestamp": parse("2022-09-27T12:30:00.123456Z"),
    "record_sequence": "00000000",
    "server_transaction_id": "6329047911",
    "is_last_record_in_transaction_in_partition": True,
    "table_name": "AccountBalance",
    "column_types": (_ID, _UPDATED, _BALANCE),
    "mod_type": "UPDATE",
    "value_capture_type": "OLD_AND_NEW_VALUES",
    "number_of_records_in_transaction": 2,
    "number_of_partitions_in_transaction": 2,
    "transaction_tag": "app=banking,env=prod,action=update",
    "is_system_transaction": False,
}
"""The transfer between two accounts of Spanner's page."""

_PAGE_MODS = {
    "of both": ('{"AccountId":"Id1"}', '{"LastUpdate":"2022-09-27T12:30:00.123456Z","Balance":1000}',
                '{"LastUpdate":"2022-09-26T11:28:00.189413Z","Balance":1500}'),
    "NEW_VALUES": ('{"AccountId":"Id1"}', '{"LastUpdate":"2022-09-27T12:30:00.123456Z"}', "{}"),
    "NEW_ROW": ('{"AccountId":"Id1"}', '{"LastUpdate":"2022-09-27T12:30:00.123456Z","Balance":1000}', "{}"),
    "NEW_ROW_AND_OLD_VALUES": (
        '{"AccountId":"Id1"}', '{"LastUpdate":"2022-09-27T12:30:00.123456Z","Balance":1000}',
        '{"LastUpdate":"2022-09-26T11:28:00.189413Z"}',
    ),
}  # fmt: skip

_PAGE = (
    _data(mods=(Mod(*_PAGE_MODS["of both"]),)),
    _data(
        record_sequence="00000001",
        mods=(
            Mod(
                '{"AccountId":"Id2"}',
                '{"LastUpdate":"2022-09-27T12:30:00.123456Z","Balance":2000}',
                '{"LastUpdate":"2022-01-20T11:25:00.199915Z","Balance":1500}',
            ),
        ),
    ),
    *(
        _data(
            value_capture_type=captures,
            column_types=(_ID, _UPDATED) if captures == "NEW_VALUES" else (_ID, _UPDATED, _BALANCE),
            mods=(Mod(*_PAGE_MODS[captures]),),
            number_of_records_in_transaction=1,
            number_of_partitions_in_transaction=1,
        )
        for captures in ("NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
    ),
)

_TEN = parse("1970-01-01T00:00:10.00000002Z")
_PEERS: Mapping[str, Any] = {
    "commit_timestamp": _TEN,
    "record_sequence": "1",
    "server_transaction_id": "serverTransactionId",
    "is_last_record_in_transaction_in_partition": False,
    "table_name": "tableName",
    "column_types": (_column("column1", "INT64", 1, key=True), _column("column2", "BYTES", 2)),
    "number_of_records_in_transaction": 10,
    "number_of_partitions_in_transaction": 2,
    "transaction_tag": "transactionTag",
    "is_system_transaction": True,
}
_BEAM = tuple(
    _data(**_PEERS, mods=(Mod('{"column1": "value1"}', new, old),), mod_type=kind, value_capture_type=captures)
    for kind, captures, new, old in (
        ("UPDATE", "OLD_AND_NEW_VALUES", '{"column2": "newValue2"}', '{"column2": "oldValue2"}'),
        ("INSERT", "OLD_AND_NEW_VALUES", '{"column2": "newValue2"}', "{}"),
        ("DELETE", "OLD_AND_NEW_VALUES", "{}", '{"column2": "oldValue2"}'),
        ("UPDATE", "NEW_ROW", '{"column2": "newValue2"}', "{}"),
        ("DELETE", "NEW_VALUES", "{}", "{}"),
        ("NEW_MOD_TYPE", "NEW_VALUE_CAPTURE_TYPE", '{"column2": "newValue2"}', "{}"),
    )
)
"""The last one has an unknown mod type and capture type, which Beam and Debezium accept too."""

_HEARTBEAT = HeartbeatRecord(parse("2022-09-27T12:35:00.312486Z"))
_CHILDREN = ChildPartitionsRecord(
    parse("2022-09-27T12:40:00.562986Z"),
    "00000001",
    (ChildPartition("child_token_1", frozenset({"parent_token_1", "parent_token_2"})),),
)
_INITIAL = ChildPartitionsRecord(
    parse("2022-05-01T09:00:01Z"),
    "1000012389",
    (ChildPartition("child_token_1", frozenset()), ChildPartition("child_token_2", frozenset())),
)


def _googlesql(of: DataChangeRecord, *, null: bool = False) -> list[Any]:
    """Returns a row; with ``null`` empty payloads are NULL, as in Beam's tests."""
    mods = [[None if null and text == "{}" else text for text in (m.keys, m.new_values, m.old_values)] for m in of.mods]
    data = [
        _text_of(of), of.record_sequence, of.server_transaction_id, of.is_last_record_in_transaction_in_partition,
        of.table_name, [[c.name, c.type, c.is_primary_key, str(c.ordinal_position)] for c in of.column_types], mods,
        of.mod_type, of.value_capture_type, str(of.number_of_records_in_transaction),
        str(of.number_of_partitions_in_transaction), of.transaction_tag, of.is_system_transaction,
    ]  # fmt: skip
    return [[[data], None, None] if null else [[data], [], []]]


def _text_of(of: DataChangeRecord) -> str:
    return "1970-01-01T00:00:10.000000020Z" if of.commit_timestamp == _TEN else "2022-09-27T12:30:00.123456Z"


def _document(of: DataChangeRecord, *, peers: bool = False) -> str:
    """Returns a document in the page's order; those of ``peers`` have fractions in numbers, and more members."""
    point = ".0" if peers else ""
    nullable = ',"is_nullable":false' if peers else ""
    columns = ",".join(
        f'{{"name":"{c.name}","type":{c.type},"is_primary_key":{str(c.is_primary_key).lower()},'
        f'"ordinal_position":{c.ordinal_position}{point}{nullable}}}'
        for c in of.column_types
    )
    mods = ",".join(
        f'{{"keys":{m.keys}'
        + (f',"new_values":{m.new_values}' if not peers or m.new_values != "{}" else "")
        + (f',"old_values":{m.old_values}' if not peers or m.old_values != "{}" else "")
        + "}"
        for m in of.mods
    )
    return (
        f'{{"data_change_record":{{"commit_timestamp":"{_text_of(of)}","record_sequence":"{of.record_sequence}",'
        f'"server_transaction_id":"{of.server_transaction_id}","is_last_record_in_transaction_in_partition":'
        f'{str(of.is_last_record_in_transaction_in_partition).lower()},"table_name":"{of.table_name}",'
        f'"column_types":[{columns}],"mods":[{mods}],"mod_type":"{of.mod_type}",'
        f'"value_capture_type":"{of.value_capture_type}",'
        f'"number_of_records_in_transaction":{of.number_of_records_in_transaction}{point},'
        f'"number_of_partitions_in_transaction":{of.number_of_partitions_in_transaction}{point},'
        f'"transaction_tag":"{of.transaction_tag}","is_system_transaction":{str(of.is_system_transaction).lower()}}}}}'
    )


_SOURCE = "__8BAYEHAiwAH5AAAYLAQYNteWNzAAGEgQYlWTAQARGCgIMAhATIEK0yhWcyNzNfMzkxNjI2MjUAAf__wGQBAf__"
_DESTINATION = "__8BAYEHAiwAH5AAAYLAQYNteWNzAAGEgQYlWS_gARGCgIMAhAS4rvlzhWcyNzNfMzkxNjI2MjIAAf__wGQBAf__"
_MOVED = "2026-08-05T19:25:38.566892Z"
_MOVE = {"commitTimestamp": _MOVED, "recordSequence": "83365be2414b3aae-00000001"}
_INSERTED = {
    "commitTimestamp": _MOVED,
    "recordSequence": "83365be2414b3aae-00000002",
    "serverTransactionId": "MTQyNTcxODE0NTc5NzQxNDkyNjk=",
    "isLastRecordInTransactionInPartition": True,
    "table": "BenchmarkPlacementUsers",
    "columnMetadata": [
        {"name": "UserId", "type": {"code": "INT64"}, "isPrimaryKey": True, "ordinalPosition": "1"},
        {"name": "PlacementKey", "type": {"code": "STRING"}, "ordinalPosition": "2"},
        {"name": "AccountBalance", "type": {"code": "NUMERIC"}, "ordinalPosition": "5"},
    ],
    "mods": [{"keys": [{"value": "4"}], "newValues": [{"columnMetadataIndex": 1, "value": "default"}]}],
    "modType": "INSERT",
    "valueCaptureType": "OLD_AND_NEW_VALUES",
    "numberOfRecordsInTransaction": 1,
    "numberOfPartitionsInTransaction": 2,
}

_MUTABLE: tuple[tuple[str, Any, Record], ...] = (
    ("debezium: an insert", {"dataChangeRecord": _INSERTED}, _data(
        commit_timestamp=parse(_MOVED), record_sequence="83365be2414b3aae-00000002",
        server_transaction_id="MTQyNTcxODE0NTc5NzQxNDkyNjk=", table_name="BenchmarkPlacementUsers",
        column_types=(
            _column("UserId", "INT64", 1, key=True), _column("PlacementKey", "STRING", 2),
            _column("AccountBalance", "NUMERIC", 5),
        ),
        mods=(Mod('{"UserId":"4"}', '{"PlacementKey":"default"}', "{}"),), mod_type="INSERT",
        number_of_records_in_transaction=1, number_of_partitions_in_transaction=2, transaction_tag="",
    )),
    ("debezium: keys move out", {"partitionEventRecord": {
        **_MOVE, "partitionToken": _SOURCE, "moveOutEvents": [{"destinationPartitionToken": _DESTINATION}],
    }}, PartitionEventRecord(parse(_MOVED), 0)),
    ("debezium: keys move in", {"partitionEventRecord": {
        **_MOVE, "partitionToken": _DESTINATION, "moveInEvents": [{"sourcePartitionToken": _SOURCE}],
    }}, PartitionEventRecord(parse(_MOVED), 1)),
    ("page: partitions start", {"partitionStartRecord": {
        "startTimestamp": _MOVED, "recordSequence": "1", "partitionTokens": [_SOURCE, _DESTINATION],
    }}, PartitionStartRecord(parse(_MOVED), (_SOURCE, _DESTINATION))),
    ("page: a partition ends", {"partitionEndRecord": {
        "endTimestamp": _MOVED, "recordSequence": "2", "partitionToken": _SOURCE,
    }}, PartitionEndRecord(parse(_MOVED))),
    ("page: a heartbeat", {"heartbeatRecord": {"timestamp": _MOVED}}, HeartbeatRecord(parse(_MOVED))),
)  # fmt: skip

_CHANGES = [(f"page {number}", one) for number, one in enumerate(_PAGE)]
_PEERS_CHANGES = [(f"beam and debezium {number}", one) for number, one in enumerate(_BEAM)]
_NULLS = [None] * 13
_CHILDREN_DOCUMENT = (
    '{"child_partitions_record":{"start_timestamp":"2022-09-27T12:40:00.562986Z","record_sequence":"00000001",'
    '"child_partitions":[{"token":"child_token_1","parent_partition_tokens":["parent_token_1","parent_token_2"]}]}}'
)
_INITIAL_DOCUMENT = (
    '{"child_partitions_record":{"record_type":"child_partitions","start_timestamp":"2022-05-01T09:00:01Z",'
    '"record_sequence":1000012389,"child_partitions":[{"token":"child_token_1","parent_partition_tokens":[null]},'
    '{"token":"child_token_2","parent_partition_tokens":[null]}]}}'
)
_CHILDREN_ROW = [_CHILDREN.record_sequence, [["child_token_1", ["parent_token_1", "parent_token_2"]]]]
_INITIAL_ROW = ["1000012389", [["child_token_1", [None]], ["child_token_2", [None]]]]

PUBLISHED: tuple[Published, ...] = (
    *(Published(name, "googlesql", _googlesql(one), one) for name, one in _CHANGES + _PEERS_CHANGES),
    *(Published(f"{name}, NULLs", "googlesql", _googlesql(one, null=True), one) for name, one in _PEERS_CHANGES),
    *(Published(name, "postgresql", _document(one), one) for name, one in _CHANGES + _PEERS_CHANGES),
    *(Published(f"{name}, as JSON", "postgresql", _document(one, peers=True), one) for name, one in _PEERS_CHANGES),
    Published("page: a heartbeat", "googlesql", [[[], [["2022-09-27T12:35:00.312486Z"]], []]], _HEARTBEAT),
    Published(
        "beam: a heartbeat beside records of NULLs",
        "googlesql",
        [[[_NULLS], [["2022-09-27T12:35:00.312486Z"]], [_NULLS[:3]]]],
        _HEARTBEAT,
    ),
    Published(
        "page: a heartbeat",
        "postgresql",
        '{"heartbeat_record":{"timestamp":"2022-09-27T12:35:00.312486Z"}}',
        _HEARTBEAT,
    ),
    Published(
        "page: a child partition", "googlesql", [[[], [], [["2022-09-27T12:40:00.562986Z", *_CHILDREN_ROW]]]], _CHILDREN
    ),
    Published("page: a child partition", "postgresql", _CHILDREN_DOCUMENT, _CHILDREN),
    Published(
        "page: children of the initial query", "googlesql", [[[], [], [["2022-05-01T09:00:01Z", *_INITIAL_ROW]]]],
        _INITIAL,
    ),
    Published("page: children of the initial query", "postgresql", _INITIAL_DOCUMENT, _INITIAL),
    *(Published(name, "mutable", row, record) for name, row, record in _MUTABLE),
)  # fmt: skip
