"""Cases 11 to 13: values and their types are kept, and no row is ever read back."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from emulator import TABLES, Column, Table
from emulator.scenario.history import Change, PartitionMode, ReportedColumn, ReportedMod
from emulator.scripted.spanner import ScriptedSpanner
from emulator.scripted.stream_query import reads_change_stream
from emulator.workload.tables import Dialect
from emulator.workload.values import Value
from tests.emulator.scripted.scripted_stream import FORMS, at
from tests.peers.histories import KEY, change, column, partition, split, stream
from tests.peers.served import daemon_reads, events_of_spool, served, singers_of_spool, tailed

EIGHT = list(range(1, 9))


def valued(columns: tuple[ReportedColumn, ...], values: Mapping[str, Value], singer: int = 1) -> Change:
    """Returns a record of one row with these columns."""
    mod = ReportedMod({"SingerId": str(singer)}, dict(values), {})
    return change(at(singer), singer, columns=(KEY, *columns), mods=(mod,))


# Debezium S: "NaN" went through a number parser and became 0.0
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_11_nan_and_the_infinities_stay_what_they_are(dialect: Dialect, mode: PartitionMode) -> None:
    columns = (
        column("Double", "FLOAT64", 2),
        column("Single", "FLOAT32", 3),
        column("Doubles", "FLOAT64", 4, array=True),
        column("Exact", "NUMERIC", 5, pg="PG_NUMERIC"),
    )
    values: dict[str, Value] = {
        "Double": "NaN",
        "Single": "-Infinity",
        "Doubles": ["Infinity", 0.0, "NaN", None],
        "Exact": "NaN",
    }
    with served(stream(partition("one", 0, [valued(columns, values)]), dialect=dialect, mode=mode)) as server:
        assert tailed(server).payloads == [{"SingerId": 1, **values}]


# templates I 473: a new column broke the export, and broke it again after a restart
@pytest.mark.long(but=3)
@pytest.mark.parametrize("known", ["before", "after"])
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_12_a_new_column_is_delivered_whatever_information_schema_knows(
    dialect: Dialect, mode: PartitionMode, known: str, tmp_path: Path
) -> None:
    extra = column("Extra", "JSON", 9, pg="PG_JSONB" if dialect == "postgresql" else "")
    events = [
        *(change(at(second), second) for second in (1, 2)),
        *(valued((extra,), {"Extra": '{"a":1}'}, singer) for singer in (3, 4)),
    ]
    singers = next(table for table in TABLES if table.name == "Singers")
    grown = Table("Singers", (*singers.columns, Column("Extra", "JSON")))
    tables = (singers if known == "before" else grown,)
    scenario = stream(partition("one", 0, events), dialect=dialect, mode=mode, tables=tables)
    with served(scenario) as server:
        for second in (1, 3, 5):  # a restart before the column is added, and one after
            daemon_reads(server, tmp_path / "spool", end=at(second))
        assert tailed(server).payloads[2:] == [{"SingerId": singer, "Extra": {"a": 1}} for singer in (3, 4)]
    rows = events_of_spool(tmp_path / "spool")
    assert len({row["schema_key"] for row in rows}) == (2 if known == "before" else 1)
    assert rows[2]["schema_key"] == rows[3]["schema_key"]
    assert '"Extra":' in rows[3]["payload"].replace(" ", "")


# templates I 473: the schema of each record is its own, though a later look says otherwise
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_12_values_are_read_by_the_types_of_their_record(dialect: Dialect, mode: PartitionMode) -> None:
    later = Table(
        "Singers", (Column("SingerId", "INT64", nullable=False), Column("Code", "INT64"), Column("At", "STRING"))
    )
    columns = (column("Code", "STRING", 2), column("At", "INT64", 3))
    events = [valued(columns, {"Code": "007", "At": "7"}, singer) for singer in (1, 2)]
    scenario = stream(partition("one", 0, events), dialect=dialect, mode=mode, tables=(later,))
    with served(scenario) as server:
        assert tailed(server).payloads == [{"SingerId": singer, "Code": "007", "At": 7} for singer in (1, 2)]


def statements_sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records every statement that servers of this process receive from now on."""
    statements: list[str] = []
    describe, execute = ScriptedSpanner.describe, ScriptedSpanner.execute

    def describing(
        self: ScriptedSpanner, sql: str, parameters: Mapping[str, str | None], at: int | None = None
    ) -> object:
        statements.append(sql)
        return describe(self, sql, parameters, at)

    def executing(
        self: ScriptedSpanner, sql: str, parameters: Mapping[str, str | None], at: int | None = None
    ) -> object:
        if reads_change_stream(sql):
            statements.append(sql)
        return execute(self, sql, parameters, at)

    monkeypatch.setattr(ScriptedSpanner, "describe", describing)
    monkeypatch.setattr(ScriptedSpanner, "execute", executing)
    return statements


# templates I 473, Beam S: the schema as it was then, read with a stale timestamp, fails beyond version retention
def test_case_12_the_schema_is_queried_before_reading_starts_and_not_in_the_past(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    statements = statements_sent(monkeypatch)
    with served(split()) as server:  # which rejects all but strong reads
        for second in (13, 30):
            statements.clear()
            daemon_reads(server, tmp_path / "spool", end=at(second))
            began = next(index for index, sql in enumerate(statements) if reads_change_stream(sql))
            assert any("information_schema" in sql.lower() for sql in statements[:began])
            assert not any("information_schema" in sql.lower() for sql in statements[began:])
    assert singers_of_spool(tmp_path / "spool") == EIGHT


# templates S: stale reads to complete a row
def test_case_13_nothing_reads_rows_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    statements = statements_sent(monkeypatch)
    events = [change(at(1), 1, value_capture_type="OLD_AND_NEW_VALUES"), change(at(2), 2, mod_type="DELETE")]
    with served(stream(partition("one", 0, events))) as server:
        daemon_reads(server, tmp_path / "spool")
        assert tailed(server).singers == [1, 2]
    assert statements
    for sql in statements:
        metadata = "information_schema" in sql.lower() or sql == "SELECT CURRENT_TIMESTAMP"
        assert metadata or reads_change_stream(sql), sql


# templates S: NULLs were taken out of arrays
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_13_null_elements_of_arrays_are_kept(dialect: Dialect, mode: PartitionMode, tmp_path: Path) -> None:
    names = ("INT64", "STRING", "JSON", "BOOL", "FLOAT64")
    columns = tuple(column(name.title(), name, number, array=True) for number, name in enumerate(names, 2))
    values: dict[str, Value] = {
        "Int64": [None, "1", None],
        "String": ["", None],
        "Json": [None, "null", '{"a":null}'],
        "Bool": [None],
        "Float64": [],
    }
    printed = {"Int64": [None, 1, None], "Json": [None, None, {"a": None}]}
    with served(stream(partition("one", 0, [valued(columns, values)]), dialect=dialect, mode=mode)) as server:
        daemon_reads(server, tmp_path / "spool")
        assert tailed(server).payloads == [{"SingerId": 1, **values, **printed}]
    (row,) = events_of_spool(tmp_path / "spool")
    for part in ('"Int64":[null,"1",null]', '"String":["",null]', '"Bool":[null]', '"Float64":[]'):
        assert part in row["payload"].replace(" ", "")
