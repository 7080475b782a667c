"""Lakehouse tables are read as Spanner's rows are, and a repair mends what no later change has written."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from connector.config.replicas import Selection, ValuePrecision
from connector.config.sections import SparkConfig
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.events import EventWriter
from connector.proof.verify.rows import RowChange, parsed, rows_after
from connector.proof.verify.values import TableValues
from connector.spool.consumers import record as record_consumer
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Deletes, Format, Mode, TableOptions, TablesConfig
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.reading.replica import TablesReplica
from tests.spark_sink.sinks.tables.reading import epochs, sealed, target
from tests.spark_sink.sinks.tables.repairs.sealing import sealed_repair
from tests.spark_sink.spools import KEY, SINGERS, START, SpoolMaker, record


@pytest.mark.long(but=1)
@pytest.mark.parametrize("deletes", ["apply", "flag"])
def test_a_repair_replaces_and_deletes_what_no_later_change_has_written(
    lake: SparkSession, merging_format: Format, deletes: Deletes, tmp_path: Path
) -> None:
    maker, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    options = TableOptions(merging_format, str(path), None, "merge", deletes)
    table = target(path, merging_format)
    stream = TablesWriter(Feed.at(maker.path), options, "tables")
    maker.seal(record(START + SECOND, range(6), values={"Name": "right"}))
    stream.write(epochs(lake, maker, 1, 1))
    lake.sql(f"UPDATE {table} SET Name = 'wrong' WHERE Id IN (1, 3, 4)")
    lake.sql(f"DELETE FROM {table} WHERE Id IN (2, 5)")
    lake.sql(f"INSERT INTO {table} (Id, Name, _is_deleted) VALUES (100, 'extra', false), (101, 'extra', false)")

    at = START + 10 * SECOND
    own = sealed_repair(maker, at, dict.fromkeys(range(1, 6), "right"), [100, 101])
    maker.seal(
        record(at + SECOND, [3, 101], values={"Name": "later"}),
        record(at + SECOND, [4, 5], mod_type="DELETE", sequence=1),
    )
    tombstones = frozenset({"Singers"})
    stream.write(epochs(lake, maker, 2, 2), tombstones=tombstones)
    events = sealed(lake, own, 1, 2)
    for _ in range(2):  # the second time it is repeated
        TablesWriter(Feed(own, maker.spool), options, "tables").write(events, tombstones=tombstones, of_backfill=True)
        lake.sql(f"REFRESH TABLE {table}")
        rows = {row["Id"]: row["Name"] for row in lake.table(table).where("NOT _is_deleted").collect()}
        assert rows == {0: "right", 1: "right", 2: "right", 3: "later", 101: "later"}
    stream.remove_deleted(lake, "Singers")
    assert lake.table(table).where("_is_deleted").count() == 0


@pytest.mark.long
def test_a_repair_deletes_what_somebody_has_written_into_a_history(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """Such a row has no sequence number: it stayed, and each repair sent its DELETE again."""
    maker, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    options = TableOptions(merging_format, str(path), None, "history", "apply")
    table = target(path, merging_format)
    stream = TablesWriter(Feed.at(maker.path), options, "tables")
    maker.seal(record(START + SECOND, range(3), values={"Name": "right"}))
    stream.write(epochs(lake, maker, 1, 1))
    before = lake.table(table).collect()
    lake.sql(
        f"INSERT INTO {table} (Id, Name, _is_current, _is_deleted) VALUES (1, 'extra', true, false),"
        " (100, 'extra', true, NULL), (101, 'extra', true, false), (101, 'extra', true, NULL)"
    )
    at = START + 10 * SECOND
    own = sealed_repair(maker, at, {1: "right"}, [100])
    tombstones = frozenset({"Singers"})
    maker.seal(record(at + SECOND, [101], values={"Name": "later"}))
    stream.write(epochs(lake, maker, 2, 2), tombstones=tombstones)
    TablesWriter(Feed(own, maker.spool), options, "tables").write(
        sealed(lake, own, 1, 2), tombstones=tombstones, of_backfill=True
    )
    stream.remove_deleted(lake, "Singers")
    lake.sql(f"REFRESH TABLE {table}")
    rows = lake.table(table).where("_is_current").collect()
    assert sorted((row["Id"], row["Name"]) for row in rows) == [
        (0, "right"),
        (1, "right"),
        (2, "right"),
        (101, "later"),
    ]
    assert [row for row in before if row not in rows] == [], "versions stay as they were"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["merge", "history"])
def test_a_row_that_was_inserted_again_stays_when_a_repair_brings_the_delete_that_was_lost_before(
    lake: SparkSession, merging_format: Format, mode: Mode, tmp_path: Path
) -> None:
    """The INSERT has the same values, and came before the repair: a history had no trace of it."""
    maker, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    options = TableOptions(merging_format, str(path), None, mode, "apply")
    table = target(path, merging_format)
    stream = TablesWriter(Feed.at(maker.path), options, "tables")
    maker.seal(record(START + SECOND, [7], values={"Name": "same"}))
    stream.write(epochs(lake, maker, 1, 1))
    at = START + 10 * SECOND
    own = sealed_repair(maker, at, {8: "other"}, [7])
    maker.seal(record(at + SECOND, [7], values={"Name": "same"}))
    tombstones = frozenset({"Singers"})
    for _ in range(2):  # the second time it is repeated
        stream.write(epochs(lake, maker, 2, 2), tombstones=tombstones)
        TablesWriter(Feed(own, maker.spool), options, "tables").write(
            sealed(lake, own, 1, 2), tombstones=tombstones, of_backfill=True
        )
    stream.remove_deleted(lake, "Singers")
    lake.sql(f"REFRESH TABLE {table}")
    rows = lake.table(table).collect()
    if mode == "merge":
        assert sorted(row["Id"] for row in rows) == [7, 8]
        return
    spans = {(row["Id"], row["_change_sequence_number"][:16], (row["_end_sequence_number"] or "")[:16]) for row in rows}
    first, deleted, again = (f"{one:016X}" for one in (START + SECOND, at, at + SECOND))
    assert spans == {(7, first, deleted), (7, again, ""), (8, deleted, "")}


VALUES: dict[str, tuple[str, object]] = {
    "Flag": ("BOOL", True),
    "Whole": ("INT64", "-9223372036854775808"),
    "Small": ("FLOAT32", 0.1),
    "Number": ("FLOAT64", "NaN"),
    "Exact": ("NUMERIC", "-12345678901234567890123456789.123456789"),
    "Text": ("STRING", 'a "quoted" \n text'),
    "Binary": ("BYTES", "AP8="),
    "Day": ("DATE", "0001-01-01"),
    "Time": ("TIMESTAMP", "2026-03-01T10:00:00.123456Z"),
    "Document": ("JSON", '{"a":[1,2.5,null],"b":"text"}'),
    "Nothing": ("STRING", None),
}


def all_columns() -> tuple[ColumnType, ...]:
    """A column for each type, and an array of it."""
    columns = [KEY]
    for number, (name, (code, _)) in enumerate(VALUES.items()):
        columns.append(ColumnType(name, f'{{"code":"{code}"}}', False, 2 + 2 * number))
        of_array = f'{{"array_element_type":{{"code":"{code}"}},"code":"ARRAY"}}'
        columns.append(ColumnType(f"{name}s", of_array, False, 3 + 2 * number))
    return tuple(columns)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["merge", "append", "history"])
def test_values_of_every_type_are_read_as_events_have_them(
    lake: SparkSession, merging_format: Format, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    columns = all_columns()
    values: dict[str, object] = {}
    for name, (_, value) in VALUES.items():
        values |= {name: value, f"{name}s": [value, None]}
    maker.seal(record(START + SECOND, [1, 2], columns=columns, values=values))
    maker.seal(record(START + 2 * SECOND, [2], columns=columns, mod_type="DELETE"))
    options = TableOptions(merging_format, str(path), None, mode, "apply")
    TablesWriter(Feed.at(maker.path), options, "tables").write(epochs(lake, maker, 1, 2))
    latest = maker.spool.latest()
    record_consumer(maker.spool, "tables", latest, now=START, at=maker.spool.manifest(latest).identity)

    found = list(_changes(lake, merging_format, mode, maker, path, TableSchema.of("Singers", columns), monkeypatch))
    schema = TableSchema.of("Singers", columns)
    ((_, row),) = rows_after(found).items()
    text = orjson.dumps({"Id": "1", **values}).decode()
    wanted = parsed(EventWriter(lambda _: schema).payload(text, ""))
    compared = TableValues(schema, ValuePrecision(timestamp=1000))
    assert [name for name in wanted if not compared.equal(name, wanted[name], row.get(name))] == []
    orders = {(change.change, change.order[0]) for change in found}
    assert (("DELETE", START + 2 * SECOND) in orders) == (mode == "append")
    assert ("INSERT", START + SECOND) in orders


def _changes(
    lake: SparkSession,
    of_format: Format,
    mode: Mode,
    maker: SpoolMaker,
    path: Path,
    schema: TableSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> list[RowChange]:
    """The changes that are read of the table, by the tests' session."""
    module = "spark_sink.sinks.tables.reading.replica"
    monkeypatch.setattr(f"{module}.session", lambda *_, **__: lake)
    monkeypatch.setattr(f"{module}.stop_session", lambda _: None)
    sink = TablesConfig.model_validate({"format": of_format, "path": str(path), "mode": mode})
    replica = TablesReplica(sink, maker.path, SparkConfig())
    assert replica.delivered == START + 2 * SECOND
    found: list[dict[str, Any]] = [
        event
        for batch in replica.changes({"Singers": schema, "Others": TableSchema.of("Others", SINGERS)}, Selection())
        for event in batch.to_pylist()
    ]
    replica.close()
    return [
        RowChange(
            event["object"],
            str(orjson.loads(event["payload"])["Id"]),
            (int(event["sort_keys"][1]), int(event["sort_keys"][2]), int(event["sort_keys"][3])),
            event["source_metadata"]["mod_type"],
            event["payload"].encode(),
        )
        for event in found
    ]
