"""Rows for BigQuery are what plain Python makes of each payload, whatever the types, and what is rejected has to be."""

import json
import math
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from connector.core.column_kinds import ColumnKind, Layout
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_second
from connector.envelope.envelope import SCHEMA
from spark_sink.sinks.bigquery.rows.builder import RowBuilder
from spark_sink.sinks.bigquery.tables.table import (
    BigQueryTable,
    BigQueryTableOptions,
    Mode,
    TableColumn,
    bigquery_name,
    bigquery_table,
)
from tests.connector.builders import AT, record
from tests.property.effort import effort
from tests.spark_sink.sinks.bigquery.rows.built import MODES, NOW, decoded, enveloped

Value = tuple[Any, Any]
"""A value as Spanner writes it in JSON, and what it is in the message."""

_MOST = 2**63


def _timestamp(nanos: int, digits: int, zone: str) -> Value:
    nanos -= nanos % 10 ** (9 - digits)
    seconds, rest = divmod(nanos, 10**9)
    fraction = f".{rest:09}"[: digits + 1] if digits else ""
    return f"{format_second(seconds)}{fraction}{zone}", nanos // 1000


def _same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return values.map(lambda value: (value, value))


integers = st.integers(-_MOST, _MOST - 1) | st.integers(-200, 200)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
real_names = st.sampled_from([("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)])
json_texts = st.sampled_from(["null", "1.10", '{"a": [1, null]}', '"text"', "[]"])
LONGS = (integers.map(lambda number: (str(number), number)), integers.map(lambda number: (number, number)))
TIMES = st.builds(
    _timestamp,
    st.integers(-62135596800 * 10**9, 253402300800 * 10**9 - 1) | st.integers(-(10**18), 10**18),
    st.sampled_from([0, 3, 6, 6, 6, 7, 9]),
    st.sampled_from(["Z", "Z", "Z", "+00:00"]),
)
NUMBERS = st.decimals(-(10**29) + 1, 10**29 - 1, places=9).map("{:f}".format) | st.sampled_from(["0", "-1.5", "1.10"])
PG_NUMBERS = NUMBERS | st.sampled_from(["NaN", "9" * 38, "9" * 39, f"-0.{'1' * 38}", f"0.{'1' * 39}", "9" * 99])
COMMON: dict[str, st.SearchStrategy[Value]] = {
    '{"code":"BOOL"}': _same(st.booleans()),
    '{"code":"FLOAT64"}': _same(st.floats(allow_nan=False, allow_infinity=False)) | real_names,
    '{"code":"FLOAT32"}': _same(st.floats(width=32, allow_nan=False, allow_infinity=False)) | real_names,
    '{"code":"STRING"}': _same(texts),
    '{"code":"UUID"}': _same(st.uuids().map(str)),
    '{"code":"INTERVAL"}': _same(st.just("P1Y2M3DT4H5M6.5S")),
    '{"code":"BYTES"}': st.binary(max_size=8).map(lambda data: (b64encode(data).decode(), data)),
    '{"code":"DATE"}': st.dates().map(lambda day: (day.isoformat(), (day - date(1970, 1, 1)).days)),
    '{"code":"TIMESTAMP"}': TIMES,
}
DIALECTS: dict[str, dict[str, st.SearchStrategy[Value]]] = {
    "googlesql": {
        **COMMON,
        '{"code":"INT64"}': LONGS[0],
        '{"code":"ENUM","proto_type_fqn":"a.C"}': LONGS[0],
        '{"code":"NUMERIC"}': _same(NUMBERS),
        '{"code":"JSON"}': _same(json_texts),
        '{"code":"PROTO","proto_type_fqn":"a.B"}': st.just(("CgA=", b"\x0a\x00")),
        '{"code":"TYPE_OF_TOMORROW"}': _same(st.sampled_from(["a", ["1"], {"a": None}, 1.5])),
    },
    "postgresql": {
        **COMMON,
        '{"code":"INT64"}': LONGS[0] | LONGS[1],
        '{"code":"INT64","type_annotation":"PG_OID"}': LONGS[0],
        '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}': _same(PG_NUMBERS),
        '{"code":"JSON","type_annotation":"PG_JSONB"}': _same(json_texts),
    },
}
IN_KEYS = ("INT64", "STRING", "TIMESTAMP", "DATE", "BOOL", "NUMERIC")
AS_JSON: dict[str, Callable[[Value], Any]] = {
    "INT64": lambda value: value[1],
    "ENUM": lambda value: value[1],
    "JSON": lambda value: json.loads(value[0]),
}
"""The form of an element in the JSON of an array, by its code; else as it came."""

ABSENT = object()


def _first(value: Value) -> Any:
    return value[0]


@dataclass(frozen=True, slots=True)
class Cell:
    """A column's value in a row: as JSON has it, if it does, and as the message does; or that it is rejected."""

    json: Any = ABSENT
    wanted: Any = None
    rejected: bool = False


def _scalar_is_refused(value: Any, column: TableColumn) -> bool:
    if column.field.type == "BIGNUMERIC":
        number = Decimal(value)
        if not number.is_finite():
            return True
        scaled = number.scaleb(38, Context(prec=999))
        return scaled.copy_abs() >= 10**76 or scaled != scaled.to_integral_value()
    if column.field.required and column.field.type == "TIMESTAMP":
        return len(value) > 27 and any(digit in "123456789" for digit in value.split(".")[1][6:9])
    return False


def _wanted(value: Value, column: TableColumn) -> Any:
    """A scalar's value in the message."""
    return value[0] if column.field.type == "STRING" and isinstance(value[1], int) else value[1]


@st.composite
def cells(draw: st.DrawFn, column: TableColumn, type_json: str, values: st.SearchStrategy[Value], array: bool) -> Cell:
    """A value that may be absent, null, or of another type."""
    must = column.field.required
    kind = draw(st.sampled_from(["value"] * 9 + ["null", "absent", "misfit"]))
    if kind == "absent":
        return Cell(rejected=must)
    if kind == "null":
        return Cell(None, rejected=must)
    as_json = array and not column.field.repeated
    fits_anything = as_json or any(code in type_json for code in ("JSON", "TYPE_OF_TOMORROW"))
    if kind == "misfit" and not fits_anything:
        return Cell({"secret": 1} if array else ["secret"], rejected=True)
    if not array:
        value = draw(values)
        return Cell(value[0], _wanted(value, column), _scalar_is_refused(value[0], column))
    elements = draw(st.lists(values | st.none(), max_size=3) | st.lists(values, max_size=3))
    plain = [None if one is None else one[0] for one in elements]
    if as_json:
        convert = AS_JSON.get(json.loads(type_json)["code"], _first)
        return Cell(plain, [None if one is None else convert(one) for one in elements])
    rejected = None in plain or any(_scalar_is_refused(one, column) for one in plain if one is not None)
    return Cell(plain, [_wanted(one, column) for one in elements if one is not None] or None, rejected)


@dataclass(frozen=True, slots=True)
class Event:
    """A change and what becomes of it."""

    change: DataChangeRecord
    fields: dict[str, Any]
    rejected: bool


@dataclass(frozen=True)
class Case:
    """A table and its events."""

    table: BigQueryTable
    mode: Mode
    events: list[Event]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    types = DIALECTS[draw(st.sampled_from(sorted(DIALECTS)))]
    named = draw(
        st.lists(
            texts.filter(bool) | st.sampled_from(['quo"te', "a\\b", "1st", "datastream_metadata_struct"]),
            min_size=1,
            max_size=6,
            unique_by=lambda name: bigquery_name(name).lower(),
        )
    )
    columns, strategies = [], {}
    for number, name in enumerate(named):
        is_key = number == 0 or (number == 1 and draw(st.booleans()))
        kinds = [kind for kind in types if not is_key or json.loads(kind)["code"] in IN_KEYS]
        kind = draw(st.sampled_from(sorted(kinds)))
        array = not is_key and draw(st.booleans())
        whole = f'{{"array_element_type":{kind},"code":"ARRAY"}}' if array else kind
        columns.append(ColumnType(name, whole, is_key, number))
        strategies[name] = (kind, types[kind], array)
    mode = draw(st.sampled_from(MODES))
    table_options = BigQueryTableOptions(
        "ds",
        mode,
        timestamps=draw(st.sampled_from(["micros", "text"])),
        numeric=draw(st.sampled_from(["string", "bignumeric"])),
        arrays=draw(st.sampled_from(["repeated", "json"])),
    )
    table = bigquery_table(TableSchema.of("Singers", columns), table_options)
    some = [draw(_events(table, mode, columns, strategies)) for _ in range(draw(st.integers(1, 6)))]
    return Case(table, mode, some)


@st.composite
def _events(
    draw: st.DrawFn, table: BigQueryTable, mode: Mode, columns: list[ColumnType], strategies: dict[str, Any]
) -> Event:
    mod_type = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
    keys_only = mode == "merge" and mod_type == "DELETE"
    payload, fields, rejected = {}, {}, False
    for column in table.columns:
        cell = draw(cells(column, *strategies[column.name]))
        if cell.json is not ABSENT:
            payload[column.name] = cell.json
        if column.is_key or not keys_only:
            rejected |= cell.rejected
            if cell.wanted is not None:
                fields[column.field.name] = cell.wanted
        else:  # looked at only as far as it has to be read
            rejected |= cell.json in ({"secret": 1}, ["secret"]) and cell.rejected
    if draw(st.integers(0, 9)) == 0:
        payload["\N{SNOWMAN} new"] = "secret"
        rejected = rejected or "\N{SNOWMAN} new" not in strategies
    text = json.dumps(payload, ensure_ascii=draw(st.booleans()))
    mod = Mod("{}", "{}", text) if mod_type == "DELETE" else Mod("{}", text, "{}")
    capture = "NEW_ROW" if mode == "merge" else "NEW_VALUES"
    change = record(column_types=tuple(columns), mods=(mod,), mod_type=mod_type, value_capture_type=capture)
    return Event(change, fields, rejected)


def metadata(mode: Mode, row: dict[str, Any]) -> dict[str, Any]:
    """The fields beside the source's, of an event's row."""
    source = row["source_metadata"]
    mod_type, number = source["mod_type"], row["change_sequence_number"]
    common = {"uuid": row["uuid"], "source_timestamp": AT // 10**6}
    match mode:
        case "merge":
            change_type = "DELETE" if mod_type == "DELETE" else "UPSERT"
            return {"datastream_metadata": common, "_CHANGE_TYPE": change_type, "_CHANGE_SEQUENCE_NUMBER": number}
        case "merge-load":
            return {"datastream_metadata": {**common, "change_sequence_number": number}}
        case "append-only":
            change_type = {"UPDATE": "UPDATE-INSERT"}.get(mod_type, mod_type)
            more = {"change_sequence_number": number, "change_type": change_type, "sort_keys": row["sort_keys"]}
            return {"datastream_metadata": common | more}
    names = (
        "mod_type", "server_transaction_id", "record_sequence", "is_last_record_in_transaction_in_partition",
        "number_of_records_in_transaction", "number_of_partitions_in_transaction",
    )  # fmt: skip
    return {
        **{f"_metadata_spanner_{name}": source[name] for name in names},
        "_metadata_spanner_table_name": row["object"],
        "_metadata_spanner_commit_timestamp": AT // 1000,
        "_metadata_big_query_commit_timestamp": NOW // 1000,
    }


def comparable(value: Any) -> Any:
    """Doubles by their bits, as far as protobuf keeps them."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    return value


def read_json(table: BigQueryTable, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with those that are texts of JSON read, because spaces and escapes in them do not count."""
    texts = {
        column.field.name
        for column in table.columns
        if column.layout is Layout.JSON_ARRAY or column.kind is ColumnKind.UNKNOWN
    }

    def read(value: Any) -> Any:
        return [json.loads(item) for item in value] if isinstance(value, list) else json.loads(value)

    return {name: read(value) if name in texts else value for name, value in fields.items()}


@pytest.mark.long
@effort(400)
@given(cases(), st.integers(0, 3), st.integers(0, 3))
def test_rows_are_what_plain_python_makes_of_each_payload(case: Case, before: int, after: int) -> None:
    changes = [one.change for one in case.events]
    padded = enveloped(*changes[:before], *changes, *changes[:after])
    batch = padded.slice(len(changes[:before]), len(changes))
    builder = RowBuilder(case.table, case.mode)
    built = builder.build(batch, now=NOW)
    event(f"{case.mode}, {len(built.rejected)} rejected of {len(changes)}")
    assert [one.index for one in built.rejected] == [n for n, one in enumerate(case.events) if one.rejected]
    assert built.indexes.tolist() == [n for n, one in enumerate(case.events) if not one.rejected]
    assert not any("secret" in one.reason for one in built.rejected)
    plain = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in SCHEMA])
    rows = pa.table(batch.columns, SCHEMA).cast(plain).to_pylist()
    for index, found in zip(built.indexes.tolist(), decoded(builder, built), strict=True):
        wanted = {**case.events[index].fields, **metadata(case.mode, rows[index])}
        assert comparable(read_json(case.table, found)) == comparable(wanted)
