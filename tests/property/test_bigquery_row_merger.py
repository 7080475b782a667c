"""Changes that are folded and merged make the source's rows, however they are cut; a merge that is repeated is none.

The MERGE is read here by plain Python, line by line; `tests/spark_sink/bigquery/deliveries/test_delivery.py` runs the
statement itself.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import ColumnType, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from spark_sink.bigquery.row_merger import DELETED, PRESENT, REPLACED, Fold, merge_statement
from spark_sink.bigquery.table import Shape, bigquery_table
from tests.connector.builders import AT, record
from tests.property.effort import effort

Row = dict[str, Any]
Key = tuple[Any, ...]

STRING, INT64 = '{"code":"STRING"}', '{"code":"INT64"}'
TEXTS = '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'
KEYS = (ColumnType("Region", STRING, True, 1), ColumnType("Id", INT64, True, 2))
OTHERS = (
    ColumnType("Name", STRING, False, 3),
    ColumnType("Born", INT64, False, 4),
    ColumnType("Tags", TEXTS, False, 5),
)
SCHEMA = TableSchema.of("Singers", (*KEYS, *OTHERS), ["Id", "Region"])
TABLE = bigquery_table(SCHEMA, Shape("ds", "merge-load"))
SEQUENCE = "change_sequence_number"


@dataclass(frozen=True)
class Change:
    """A change of the source: what it names of a row, NULLs among it."""

    mod_type: str
    key: tuple[str, str]
    values: Row


@dataclass(frozen=True)
class History:
    """Changes in the order of their commits, cut into the parts of micro-batches."""

    batches: tuple[tuple[tuple[Change, ...], ...], ...]

    @property
    def changes(self) -> list[Change]:
        return [change for batch in self.batches for part in batch for change in part]


VALUES: dict[str, st.SearchStrategy[object]] = {
    "Name": st.sampled_from([None, "", "a", "b\n\"\\'€"]),
    "Born": st.sampled_from([None, "0", "-9223372036854775808"]),
    "Tags": st.sampled_from([None, [], ["a"], ["b", ""]]),
}
KEY = st.tuples(st.sampled_from(["", "eu"]), st.sampled_from(["1", "-2"]))
CHANGE = st.builds(
    Change,
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]),
    KEY,
    st.fixed_dictionaries({}, optional=VALUES) | st.fixed_dictionaries(VALUES),
)
HISTORIES = st.lists(
    st.lists(st.lists(CHANGE, max_size=6).map(tuple), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4
).map(lambda batches: History(tuple(batches)))


# The source's table


def replayed(changes: Iterable[Change]) -> dict[Key, Row]:
    """The table that changes leave: an INSERT begins anew, an UPDATE changes what it names, of no row or of one."""
    rows: dict[Key, Row] = {}
    for change in changes:
        if change.mod_type == "DELETE":
            rows.pop(change.key, None)
            continue
        known = rows.get(change.key, {}) if change.mod_type == "UPDATE" else {}
        rows[change.key] = {"Name": None, "Born": None, "Tags": None, **known, **change.values}
    return {key: {**row, "Tags": row["Tags"] or []} for key, row in rows.items()}  # BigQuery has no NULL array


# BigQuery's table


class Merged:
    """A table that lines are merged into, as the statement says it."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.numbers: dict[Key, str] = {}

    def merge(self, lines: bytes) -> None:
        found = [json.loads(line) for line in lines.splitlines()]
        keys = [self._key(line) for line in found]
        assert len(set(keys)) == len(keys), "BigQuery refuses a MERGE in which two lines are of one row"
        for key, line in zip(keys, found, strict=True):
            self._line(key, line)

    def _line(self, key: Key, line: Row) -> None:
        number = line["datastream_metadata"][SEQUENCE]
        if key not in self.rows:
            if not line[DELETED]:
                self.rows[key] = {name: self._value(line, name) for name in VALUES}
                self.numbers[key] = number
            return
        if not number > self.numbers[key]:
            return
        if line[DELETED]:
            del self.rows[key], self.numbers[key]
            return
        present = dict(zip((column.name for column in TABLE.columns), line[PRESENT], strict=True))
        for name in VALUES:
            if line[REPLACED] or present[name] == "1":
                self.rows[key][name] = self._value(line, name)
        self.numbers[key] = number

    @staticmethod
    def _key(line: Row) -> Key:
        return (line["Region"], line["Id"])

    @staticmethod
    def _value(line: Row, name: str) -> object:
        """A load takes what is missing for NULL, and for an empty array."""
        return line.get(name, [] if name == "Tags" else None)


def lines_of(fold: Fold, rows: pa.RecordBatch) -> bytes:
    assert fold.add(rows) == []
    return fold.lines()


def rows_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """Events; each three have one commit timestamp, so that the record sequence counts, too."""
    return enveloped(
        *(
            record(
                commit_timestamp=AT + number // 3,
                record_sequence=f"{number % 3:08d}",
                server_transaction_id=f"t{number}",
                column_types=(*KEYS, *(column for column in OTHERS if column.name in change.values)),
                mods=(mod_of(change),),
                mod_type=change.mod_type,
            )
            for number, change in enumerate(changes)
        )
    )


def mod_of(change: Change) -> Mod:
    keys = json.dumps({"Region": change.key[0], "Id": change.key[1]})
    values = json.dumps(change.values)
    return Mod(keys, "{}", values) if change.mod_type == "DELETE" else Mod(keys, values, "{}")


def enveloped(*records: Any) -> pa.RecordBatch:
    builder = EnvelopeBuilder(Source("p", "i", "d", "Everything", "d"), stream_name=None, read_method="spanner-cdc")
    return builder.build(Changes.of(records), SchemaRegistry([SCHEMA]), 1)


def parts_of(history: History) -> list[list[bytes]]:
    """The lines of each micro-batch's parts; a part without changes brings nothing."""
    rows = rows_of(history.changes) if history.changes else None
    first = 0
    out: list[list[bytes]] = []
    for batch in history.batches:
        out.append([])
        for part in filter(None, batch):
            assert rows is not None
            out[-1].append(lines_of(Fold(TABLE), rows.slice(first, len(part))))
            first += len(part)
    return out


# What is promised


@effort(120)
@given(HISTORIES)
def test_what_is_folded_and_merged_is_the_sources_table_wherever_it_is_cut(history: History) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
    expected = replayed(history.changes)
    event(f"rows: {len(expected)}")
    assert table.rows == expected


@effort(60)
@given(HISTORIES)
def test_a_part_that_is_merged_again_at_once_changes_nothing(history: History) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
            before = {key: dict(row) for key, row in table.rows.items()}, dict(table.numbers)
            table.merge(lines)
            assert (table.rows, table.numbers) == before


@effort(60)
@given(HISTORIES, st.data())
def test_a_micro_batch_that_is_merged_again_from_any_part_on_ends_as_before(
    history: History, data: st.DataObject
) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
        before = {key: dict(row) for key, row in table.rows.items()}, dict(table.numbers)
        first = data.draw(st.integers(0, len(batch)))
        for lines in batch[first:]:
            table.merge(lines)
        assert (table.rows, table.numbers) == before


@effort(50)
@given(st.lists(CHANGE, min_size=1, max_size=12), st.data())
def test_a_fold_comes_to_the_same_whether_it_is_given_rows_at_once_or_in_pieces(
    changes: list[Change], data: st.DataObject
) -> None:
    rows = rows_of(changes)
    at = data.draw(st.integers(0, len(changes)))
    fold = Fold(TABLE)
    assert fold.add(rows.slice(0, at)) == []
    assert lines_of(fold, rows.slice(at)) == lines_of(Fold(TABLE), rows)
    assert len(fold) == len({change.key for change in changes})


@effort(50)
@given(st.lists(CHANGE, min_size=1, max_size=8))
def test_of_each_row_there_is_one_line_which_has_the_last_changes_number_and_uuid(changes: list[Change]) -> None:
    rows = rows_of(changes)
    last = {change.key: number for number, change in enumerate(changes)}
    expected = {
        (rows.column("uuid")[number].as_py(), rows.column(SEQUENCE)[number].as_py()) for number in last.values()
    }
    lines = [json.loads(line) for line in lines_of(Fold(TABLE), rows).splitlines()]
    told = [(line["datastream_metadata"]["uuid"], line["datastream_metadata"][SEQUENCE]) for line in lines]
    assert set(told) == expected
    assert len(told) == len(expected)
    assert {line["datastream_metadata"]["source_timestamp"] for line in lines} <= {AT // 1_000_000}


# What single values become


def line_of(type_json: str, text: str, **options: str) -> tuple[object, list[str]]:
    """What a line has in a column of that type, and why the row is refused, if it is."""
    column = ColumnType("v", type_json, False, 2)
    fold = Fold(bigquery_table(TableSchema.of("T", (KEYS[1], column)), Shape("ds", "merge-load", **options)))
    mod = Mod('{"Id":"1"}', f'{{"v":{text}}}', "{}")
    refused = fold.add(enveloped(record(table_name="T", column_types=(KEYS[1], column), mods=(mod,))))
    lines = fold.lines().splitlines()
    return (json.loads(lines[0])["v"] if lines else None), [reason for _, reason in refused]


def array_of(element: str) -> str:
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


BYTES, JSON, FLOAT64, TIMESTAMP = (f'{{"code":"{code}"}}' for code in ("BYTES", "JSON", "FLOAT64", "TIMESTAMP"))
PG_NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'


@pytest.mark.parametrize(
    ("type_json", "text", "expected"),
    [
        (INT64, '"-9223372036854775808"', "-9223372036854775808"),
        (INT64, "null", None),
        (STRING, '"\\u0000\\n€\\"\\\\"', '\0\n€"\\'),
        (BYTES, '"aGk="', "aGk="),
        (FLOAT64, '"NaN"', "NaN"),
        (FLOAT64, '"-Infinity"', "-Infinity"),
        (FLOAT64, "-0.5e-300", -0.5e-300),
        ('{"code":"BOOL"}', "false", False),
        (
            '{"code":"NUMERIC"}',
            '"-99999999999999999999999999999.999999999"',
            "-99999999999999999999999999999.999999999",
        ),
        (PG_NUMERIC, '"NaN"', "NaN"),
        (PG_NUMERIC, "1.50", "1.50"),
        ('{"code":"DATE"}', '"0001-01-01"', "0001-01-01"),
        (TIMESTAMP, '"2026-01-02T03:04:05.123456789Z"', "2026-01-02T03:04:05.123456Z"),
        (TIMESTAMP, '"0001-01-01T00:00:00Z"', "0001-01-01T00:00:00.000000Z"),
        (TIMESTAMP, '"9999-12-31T23:59:59.999999999+00:00"', "9999-12-31T23:59:59.999999Z"),
        (JSON, '"{\\"a\\":[1,null]}"', '{"a":[1,null]}'),
        (JSON, '"\\"text\\""', '"text"'),
        (JSON, '"null"', "null"),
        (JSON, "null", None),
        (JSON, '{"a": [1, null]}', '{"a": [1, null]}'),
        (
            JSON,
            '"[18446744073709551615,-9223372036854775808,0.10,1e-7]"',
            "[18446744073709551615,-9223372036854775808,0.10,1e-7]",
        ),
        ('{"code":"TYPE_OF_TOMORROW"}', '{"a": 1}', '{"a": 1}'),
        ('{"code":"TYPE_OF_TOMORROW"}', '"a"', "a"),
        (array_of(INT64), "null", []),
        (array_of(INT64), '["1","-2"]', ["1", "-2"]),
        (array_of(FLOAT64), '[0.5,"NaN"]', [0.5, "NaN"]),
        (array_of(JSON), '["{\\"a\\":1}","null"]', ['{"a":1}', "null"]),
        (array_of(TIMESTAMP), '["2026-01-02T03:04:05.1234567Z"]', ["2026-01-02T03:04:05.123456Z"]),
        (array_of(PG_NUMERIC), '[1.50,"NaN"]', ["1.50", "NaN"]),
    ],
)
def test_a_value_is_what_a_load_of_json_takes_it_for(type_json: str, text: str, expected: object) -> None:
    assert line_of(type_json, text) == (expected, [])


@pytest.mark.parametrize(
    ("type_json", "text", "expected"),
    [
        (array_of(INT64), '["1",null]', "[1,null]"),
        (array_of(INT64), "null", None),
        (array_of(JSON), '["{\\"a\\":1}",null]', '[{"a":1},null]'),
        (array_of(FLOAT64), '["NaN",1.5]', '["NaN",1.5]'),
    ],
)
def test_an_array_is_json_where_that_is_wished_with_its_nulls(type_json: str, text: str, expected: object) -> None:
    assert line_of(type_json, text, arrays="json") == (expected, [])


def test_timestamps_keep_their_nanoseconds_where_they_are_text() -> None:
    text = "2026-01-02T03:04:05.123456789Z"
    assert line_of(TIMESTAMP, f'"{text}"', timestamps="text") == (text, [])
    assert line_of(array_of(TIMESTAMP), f'["{text}"]', timestamps="text") == ([text], [])


def test_a_json_text_of_several_lines_stays_one_line() -> None:
    text = json.dumps('{\n  "a": "b\\nc",\r\n "d": [1,\n2]}')
    expected = json.loads(text)
    assert line_of(JSON, text) == (expected, [])
    assert line_of(array_of(JSON), f"[{text}]") == ([expected], [])
    assert line_of(array_of(JSON), f"[{text}]", arrays="json") == (f"[{expected}]", [])


@pytest.mark.parametrize("text", ['"NaN"', '"Infinity"', f'"{"9" * 40}"', f'"0.{"1" * 39}"'])
def test_a_number_that_no_bignumeric_is_refused_by_itself_for_a_load_would_refuse_all(text: str) -> None:
    value, refused = line_of(PG_NUMERIC, text, numeric="bignumeric")
    assert (value, refused) == (None, ["column v holds a number that BigQuery's BIGNUMERIC cannot"])
    value, refused = line_of(array_of(PG_NUMERIC), f'["1",{text}]', numeric="bignumeric")
    assert (value, refused) == (None, ["column v holds a number that BigQuery's BIGNUMERIC cannot"])
    assert line_of(PG_NUMERIC, '"-1.5"', numeric="bignumeric") == ("-1.5", [])


@pytest.mark.parametrize(
    ("type_json", "text"),
    [
        (INT64, '"x1"'),
        (INT64, "true"),
        (INT64, '"9223372036854775808"'),
        (STRING, "1"),
        (BYTES, '"abc"'),
        (BYTES, '"€"'),
        (FLOAT64, '"x"'),
        ('{"code":"BOOL"}', '"x"'),
        ('{"code":"NUMERIC"}', '"x"'),
        ('{"code":"DATE"}', '"2026-02-30"'),
        (TIMESTAMP, '"x"'),
        (JSON, '"{"'),
        (JSON, '"[18446744073709551616123]"'),
        (JSON, '"0.1234567890123456789"'),
        (JSON, '"1e400"'),
        (array_of(INT64), '["x"]'),
        (array_of(INT64), '"1"'),
        (array_of(JSON), '["{"]'),
    ],
)
def test_a_value_of_another_type_is_refused_by_itself_for_a_load_would_refuse_all(type_json: str, text: str) -> None:
    value, refused = line_of(type_json, text)
    assert value is None
    assert [("column v" in reason, text.strip('"') in reason) for reason in refused] == [(True, False)]


def test_a_refused_change_leaves_the_rows_other_changes_as_they_are() -> None:
    tags = (
        Change("INSERT", ("eu", "1"), {"Tags": ["a"]}),
        Change("UPDATE", ("eu", "1"), {"Tags": [None], "Name": "x"}),
    )
    fold = Fold(TABLE)
    ((index, reason),) = fold.add(rows_of(tags))
    assert (index, reason) == (
        1,
        "column Tags holds a NULL inside an array, which BigQuery's REPEATED columns cannot: set sink.arrays: json",
    )
    (line,) = fold.lines().splitlines()
    assert json.loads(line)["Tags"] == ["a"]
    assert "Name" not in json.loads(line)


@pytest.mark.parametrize(
    "payload", ["[]", "{", '{"Id":"1"}', '{"Region":null,"Id":"1"}', '{"Region":"eu","Id":"1","x":1}']
)
@pytest.mark.parametrize("mod_type", ["INSERT", "UPDATE", "DELETE"])
def test_a_row_that_is_none_of_the_tables_is_refused_by_itself(payload: str, mod_type: str) -> None:
    rows = rows_of([Change(mod_type, ("eu", "1"), {})])
    column = rows.schema.get_field_index("payload")
    fold = Fold(TABLE)
    refused = fold.add(rows.set_column(column, rows.schema.field(column), pa.array([payload])))
    if mod_type == "DELETE" and '"x"' in payload:  # of which the key is enough
        assert (refused, len(fold)) == ([], 1)
    else:
        assert ([index for index, _ in refused], len(fold)) == ([0], 0)


def test_a_key_of_nanoseconds_is_refused_for_two_rows_would_become_one() -> None:
    key = ColumnType("At", TIMESTAMP, True, 1)
    fold = Fold(bigquery_table(TableSchema.of("T", (key,)), Shape("ds", "merge-load")))
    mods = tuple(Mod(f'{{"At":"2026-01-02T03:04:05.12345678{digit}Z"}}', "{}", "{}") for digit in "09")
    mods += (Mod('{"At":"2026-01-02T03:04:05.123456000Z"}', "{}", "{}"),)
    refused = fold.add(enveloped(record(table_name="T", column_types=(key,), mods=mods)))
    assert [index for index, _ in refused] == [0, 1]
    assert all("set sink.timestamps: text" in reason for _, reason in refused)
    assert len(fold) == 1


def test_the_statement_names_the_keys_and_columns_as_they_are_in_bigquery() -> None:
    columns = (ColumnType("a b", INT64, True, 1), ColumnType("1st", STRING, False, 2))
    table = bigquery_table(TableSchema.of("T", columns), Shape("ds", "merge-load"))
    statement = merge_statement(table, "p.ds.T", "p.ds.staging")
    assert statement.startswith("MERGE `p.ds.T` t USING `p.ds.staging` s ON t.`a_b` = s.`a_b` WHEN MATCHED AND")
    assert "INSERT (`a_b`, `_1st`, `datastream_metadata`)" in statement
    assert "`1st`" not in statement


def test_the_statement_makes_json_of_the_texts_that_were_loaded() -> None:
    columns = (
        ColumnType("Id", INT64, True, 1),
        ColumnType("a b", JSON, False, 2),
        ColumnType("c", array_of(JSON), False, 3),
    )
    table = bigquery_table(TableSchema.of("T", columns), Shape("ds", "merge-load"))
    statement = merge_statement(table, "p.ds.T", "p.ds.staging")
    assert (
        "USING (SELECT * REPLACE (PARSE_JSON(`a_b`) AS `a_b`,"
        " ARRAY(SELECT PARSE_JSON(e) FROM UNNEST(`c`) e WITH OFFSET o ORDER BY o) AS `c`) FROM `p.ds.staging`) s ON"
    ) in statement
