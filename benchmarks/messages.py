"""The bytes of a change stream's answer: partial result sets of both dialects in three framings.

Eleven columns, NEW_ROW, as PERFORMANCE's figures have it: one record in a message, sixteen, or one of fifty mods.
"""

import json
from dataclasses import dataclass

from google.cloud.spanner_v1 import types
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.timestamps import format_rfc3339

PartialResultSet = types.PartialResultSet.pb()
FRAMINGS = {"1/msg": (1, 1), "16/msg": (16, 1), "50-mod": (1, 50)}
"""Records a message, mods a record."""

_COLUMNS = [("Id", "INT64")] + [(f"Column{n}", "STRING" if n % 2 else "INT64") for n in range(1, 11)]
_START = 1_767_225_600_000_000_000


@dataclass(frozen=True)
class Answer:
    """The messages of one query, and how many mods they hold."""

    messages: list[bytes]
    mods: int


def answer(dialect: str, framing: str, mods: int) -> Answer:
    """An answer of about ``mods`` mods."""
    records, per_record = FRAMINGS[framing]
    count = max(mods // (records * per_record), 1)
    encode = _googlesql if dialect == "googlesql" else _postgresql
    messages = []
    for number in range(count):
        result = PartialResultSet(resume_token=b"t")
        if number == 0:
            result.metadata.CopyFrom(_metadata(dialect))
        for record in range(records):
            result.values.append(encode(number * records + record, per_record))
        messages.append(result.SerializeToString())
    return Answer(messages, count * records * per_record)


def _metadata(dialect: str) -> object:
    # The type of the one column; the baseline's result set parses values by it.
    def array(fields: list[tuple[str, object]]) -> dict[str, object]:
        named = [{"name": name, "type": kind} for name, kind in fields]
        return {"code": "ARRAY", "arrayElementType": {"code": "STRUCT", "structType": {"fields": named}}}

    text, time, json_, flag = {"code": "STRING"}, {"code": "TIMESTAMP"}, {"code": "JSON"}, {"code": "BOOL"}
    number = {"code": "INT64"}
    column = [("name", text), ("type", json_), ("is_primary_key", flag), ("ordinal_position", number)]
    mod = [("keys", json_), ("new_values", json_), ("old_values", json_)]
    data = [
        ("commit_timestamp", time), ("record_sequence", text), ("server_transaction_id", text),
        ("is_last_record_in_transaction_in_partition", flag), ("table_name", text), ("column_types", array(column)),
        ("mods", array(mod)), ("mod_type", text), ("value_capture_type", text),
        ("number_of_records_in_transaction", number), ("number_of_partitions_in_transaction", number),
        ("transaction_tag", text), ("is_system_transaction", flag),
    ]  # fmt: skip
    child = array([("token", text), ("parent_partition_tokens", {"code": "ARRAY", "arrayElementType": text})])
    change = array(
        [
            ("data_change_record", array(data)),
            ("heartbeat_record", array([("timestamp", time)])),
            (
                "child_partitions_record",
                array([("start_timestamp", time), ("record_sequence", text), ("children", child)]),
            ),
        ]
    )
    kind = change if dialect == "googlesql" else {"code": "JSON", "typeAnnotation": "PG_JSONB"}
    node = {"rowType": {"fields": [{"name": "ChangeRecord", "type": kind}]}}
    return types.ResultSetMetadata.pb(types.ResultSetMetadata.from_json(json.dumps(node)))


def _row(number: int, mods: int) -> tuple[str, list[tuple[str, str]]]:
    at = format_rfc3339(_START + number * 1_000_000)
    rows = []
    for index in range(mods):
        values = {
            name: str(number * 1000 + index) if kind == "INT64" else "abcdefghij" * 2 for name, kind in _COLUMNS[1:]
        }
        keys = json.dumps({"Id": str(number * 100 + index)}, separators=(",", ":"))
        rows.append((keys, json.dumps(values, separators=(",", ":"))))
    return at, rows


def _googlesql(number: int, mods: int) -> Value:
    at, rows = _row(number, mods)
    columns = [[name, f'{{"code":"{kind}"}}', name == "Id", str(n)] for n, (name, kind) in enumerate(_COLUMNS, 1)]
    data = [
        at, "00000000", f"transaction{number}", True, "Singers", columns, [[k, v, "{}"] for k, v in rows],
        "INSERT", "NEW_ROW", "1", "1", "", False,
    ]  # fmt: skip
    return ParseDict([[[data], [], []]], Value())


def _postgresql(number: int, mods: int) -> Value:
    at, rows = _row(number, mods)
    columns = [
        {"is_primary_key": name == "Id", "name": name, "ordinal_position": n, "type": {"code": kind}}
        for n, (name, kind) in enumerate(_COLUMNS, 1)
    ]
    data = {
        "column_types": columns, "commit_timestamp": at, "is_last_record_in_transaction_in_partition": True,
        "is_system_transaction": False, "mod_type": "INSERT",
        "mods": [{"keys": json.loads(k), "new_values": json.loads(v), "old_values": {}} for k, v in rows],
        "number_of_partitions_in_transaction": 1, "number_of_records_in_transaction": 1, "record_sequence": "00000000",
        "server_transaction_id": f"transaction{number}", "table_name": "Singers", "transaction_tag": "",
        "value_capture_type": "NEW_ROW",
    }  # fmt: skip
    return Value(string_value=json.dumps({"data_change_record": data}, separators=(",", ":")))
