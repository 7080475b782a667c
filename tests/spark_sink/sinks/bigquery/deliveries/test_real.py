"""The BigQuery sink against the real service: a short history in each mode. Skipped unless a dataset is named.

``SPANNER_CDC_REAL_DATASET=project.dataset``; its tables get a random prefix, and are deleted.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from google.api_core.exceptions import BadRequest
from google.cloud import bigquery
from pyspark.sql import SparkSession

from connector.config import Config
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.publishing import Publication
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.replay import replay_into
from spark_sink.sinks.bigquery.rows.builder import LARGEST, SURELY_TAKEN, RowBuilder
from spark_sink.sinks.bigquery.tables.table import bigquery_table
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun, configured
from tests.spark_sink.spools import KEY, NAME, START, SpoolMaker, record

NAMED = os.environ.get("SPANNER_CDC_REAL_DATASET", "")

pytestmark = [
    pytest.mark.real_gcp,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not NAMED, reason="it needs SPANNER_CDC_REAL_DATASET=project.dataset"),
]

COLUMNS = (
    KEY,
    NAME,
    *(
        ColumnType(code.title(), f'{{"code":"{code}"}}', False, place)
        for place, code in enumerate(("BOOL", "FLOAT64", "NUMERIC", "BYTES", "DATE", "TIMESTAMP", "JSON"), 3)
    ),
    ColumnType("Array", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 10),
)
VALUES = {
    "Name": "n",
    "Bool": True,
    "Float64": 1.5,
    "Numeric": "12.5",
    "Bytes": "aGk=",
    "Date": "2026-01-02",
    "Timestamp": "2026-01-02T03:04:05.123456789Z",
    "Json": '{"a": [1]}',
    "Array": ["1", "2"],
}
LATER = ColumnType("Later", '{"code":"STRING"}', False, 11)

Query = Callable[[str], list[dict[str, object]]]


PROJECT, _, DATASET = NAMED.partition(".")
PATIENCE = 600.0
"""Seconds for which BigQuery may take its time to apply changes, or to learn of a table or a column."""


def service() -> bigquery.Client:
    """The service."""
    return bigquery.Client(project=PROJECT)


@pytest.fixture
def prefix() -> Iterator[str]:
    made = f"spanner_cdc_{secrets.token_hex(4)}_"
    yield made
    client = service()
    for table in client.list_tables(f"{PROJECT}.{DATASET}"):
        if table.table_id.startswith(made):
            client.delete_table(table.reference)


@pytest.fixture
def query() -> Query:
    client = service()
    return lambda sql: [dict(row) for row in client.query_and_wait(sql)]


def configuration(spool: SpoolMaker, prefix: str, mode: str) -> Config:
    options = {"project": PROJECT, "dataset": DATASET, "prefix": prefix, "mode": mode, "max_staleness": "0s"}
    return configured(spool.path, **options)


def sink(spool: SpoolMaker, prefix: str, mode: str, checkpoint: Checkpoint | None = None) -> SinkRun:
    return SinkRun(configuration(spool, prefix, mode), checkpoint)


def delivered(spool: SpoolMaker, prefix: str, mode: str, checkpoint: Checkpoint) -> list[str]:
    """Delivers all that is sealed; what is said."""
    with sink(spool, prefix, mode, checkpoint) as one:
        one.only_what_is_sealed()
        return one.run()


def replay(spool: SpoolMaker, prefix: str, mode: str) -> Replayed:
    place = DeadLetters(f"{spool.path}-letters/bigquery")
    with replay_into(configuration(spool, prefix, mode)) as into:
        return replayed(place, place.files(), into, [])


def eventually(query: Query, sql: str, wanted: list[dict[str, object]]) -> None:
    """Asks until that is the answer, because BigQuery takes a while."""
    deadline = time.monotonic() + PATIENCE
    while (found := query(sql)) != wanted and time.monotonic() < deadline:
        pass
    assert found == wanted


def history(path: Path) -> SpoolMaker:
    """Five rows, of which one is updated, and one deleted; then a new column."""
    spool = SpoolMaker(path)
    spool.seal(record(START + SECOND, range(5), columns=COLUMNS, values=VALUES))
    spool.seal(record(START + 2 * SECOND, [1], columns=COLUMNS, values={**VALUES, "Name": "x"}, mod_type="UPDATE"))
    spool.seal(record(START + 3 * SECOND, [0], columns=COLUMNS, values=VALUES, mod_type="DELETE"))
    later = {**VALUES, "Name": "y", "Later": "z"}
    spool.seal(record(START + 4 * SECOND, [2], columns=(*COLUMNS, LATER), values=later, mod_type="UPDATE"))
    return spool


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_a_merged_table_has_the_rows_of_the_source(tmp_path: Path, prefix: str, query: Query, mode: str) -> None:
    spool = history(tmp_path / "spool")
    delivered(spool, prefix, mode, Checkpoint([]))
    wanted = [(1, "x", None), (2, "y", "z"), (3, "n", None), (4, "n", None)]
    found: list[tuple[object, ...]] = []
    deadline = time.monotonic() + 600
    while found != wanted and time.monotonic() < deadline:  # BigQuery applies changes in its own time
        rows = query(f"SELECT * FROM `{NAMED}.{prefix}Singers` ORDER BY Id")
        found = [(row["Id"], row["Name"], row["Later"]) for row in rows]
    assert found == wanted
    assert {str(row["Numeric"]) for row in rows} == {"12.5"}
    assert [row["Array"] for row in rows] == [[1, 2]] * 4


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_an_appended_table_has_each_change_once(tmp_path: Path, prefix: str, query: Query, mode: str) -> None:
    spool = history(tmp_path / "spool")
    with sink(spool, prefix, mode) as one:
        assert one.plan()
        one.deliver([row for task in one.tasks() for row in one.reports(task)])
    assert delivered(spool, prefix, mode, Checkpoint([])), "what was begun comes again"
    name = f"{prefix}Singers" + ("_changelog" if mode == "changelog" else "")
    assert query(f"SELECT COUNT(*) AS n FROM `{NAMED}.{name}`") == [{"n": 8}]


# What no page of Google's confirms: docs/bigquery.md lists it, by what it would do, with the names of these tests.

BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_rows_written_right_after_a_table_was_dropped_and_recreated_are_there(
    tmp_path: Path, prefix: str, query: Query, mode: str
) -> None:
    spool, checkpoint = SpoolMaker(tmp_path / "spool"), Checkpoint([])
    name = f"{NAMED}.{prefix}Singers"
    spool.seal(record(START + SECOND, [1, 2]))
    delivered(spool, prefix, mode, checkpoint)
    made = service().get_table(name)
    service().delete_table(name)
    service().create_table(bigquery.Table(name, schema=made.schema))
    if mode == "merge":
        query(f"ALTER TABLE `{name}` ADD PRIMARY KEY (Id) NOT ENFORCED")
    spool.seal(record(START + 2 * SECOND, [3, 4]))
    delivered(spool, prefix, mode, checkpoint)
    eventually(query, f"SELECT Id FROM `{name}` ORDER BY Id", [{"Id": 3}, {"Id": 4}])


@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only"])
def test_a_column_that_was_renamed_is_added_again_with_another_type(
    tmp_path: Path, prefix: str, query: Query, mode: str
) -> None:
    spool, checkpoint = SpoolMaker(tmp_path / "spool"), Checkpoint([])
    name = f"{NAMED}.{prefix}Singers"
    spool.seal(record(START + SECOND, [1]))
    delivered(spool, prefix, mode, checkpoint)
    spool.seal(record(START + 2 * SECOND, [2], columns=(KEY, BYTES), values={"Name": "aGk="}))
    delivered(spool, prefix, mode, checkpoint)
    query(f"ALTER TABLE `{name}` RENAME COLUMN Name TO Name_before")
    assert replay(spool, prefix, mode) == Replayed(sent=1)
    rows: list[dict[str, object]] = [
        {"Id": 1, "Name": None, "Name_before": "n"},
        {"Id": 2, "Name": b"hi", "Name_before": None},
    ]
    eventually(query, f"SELECT Id, Name, Name_before FROM `{name}` ORDER BY Id", rows)


def test_a_table_with_changes_is_copied_by_a_query_and_then_dropped(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    name = f"{NAMED}.{prefix}Singers"
    spool.seal(record(START + SECOND, [1, 2]))
    delivered(spool, prefix, "merge", Checkpoint([]))
    query(f"CREATE TABLE `{name}_before` AS SELECT * FROM `{name}`")
    query(f"DROP TABLE `{name}`")
    assert query(f"SELECT Id FROM `{name}_before` ORDER BY Id") == [{"Id": 1}, {"Id": 2}]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {} DROP COLUMN Id",
        "ALTER TABLE {} RENAME COLUMN Id TO Other",
        "ALTER TABLE {} ALTER COLUMN Id SET DATA TYPE NUMERIC",
        "ALTER TABLE {} RENAME TO other",
        "ALTER TABLE {} DROP PRIMARY KEY",
        "UPDATE {} SET Name = 'x' WHERE TRUE",
    ],
)
def test_what_the_double_refuses_of_a_table_with_changes_is_refused(
    tmp_path: Path, prefix: str, query: Query, statement: str
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1]))
    delivered(spool, prefix, "merge", Checkpoint([]))
    with pytest.raises(BadRequest):
        query(statement.format(f"`{NAMED}.{prefix}Singers`"))


def test_a_key_is_given_to_a_table_with_rows_and_changes_are_merged_by_it(
    tmp_path: Path, prefix: str, query: Query
) -> None:
    spool, checkpoint = SpoolMaker(tmp_path / "spool"), Checkpoint([])
    name = f"{NAMED}.{prefix}Singers"
    metadata = bigquery.SchemaField(
        "datastream_metadata",
        "RECORD",
        fields=[bigquery.SchemaField("uuid", "STRING"), bigquery.SchemaField("source_timestamp", "INT64")],
    )
    columns = [bigquery.SchemaField("Id", "INT64"), bigquery.SchemaField("Name", "STRING"), metadata]
    service().create_table(bigquery.Table(name, schema=columns))
    query(f"INSERT `{name}` (Id, Name) VALUES (1, 'before'), (2, 'before')")
    spool.seal(record(START + SECOND, [2, 3]))
    (said,) = delivered(spool, prefix, "merge", checkpoint)
    statement = f"ALTER TABLE `{name}` ADD PRIMARY KEY (Id) NOT ENFORCED"
    assert statement in said
    query(statement)
    assert replay(spool, prefix, "merge") == Replayed(sent=2)
    rows = [{"Id": 1, "Name": "before"}, {"Id": 2, "Name": "n"}, {"Id": 3, "Name": "n"}]
    eventually(query, f"SELECT Id, Name FROM `{name}` ORDER BY Id", rows)


def test_many_streams_are_committed_at_once(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1]))
    delivered(spool, prefix, "append-only", Checkpoint([]))
    config = configuration(spool, prefix, "append-only")
    assert isinstance(config.sink, BigQueryConfig)
    table = bigquery_table(TableSchema.of("Singers", [KEY, NAME]), config.sink.table_options())
    writer = BigQueryWriter(config.sink.target(config.source), table)
    descriptor = RowBuilder(table, "append-only").descriptor
    streams = [writer.create_pending() for _ in range(150)]
    for number, stream in enumerate(streams):
        row = b"\x08" + bytes([number % 100])  # the first column, a number below 128
        assert writer.append(stream, descriptor, [row], 0) == []
        assert writer.finalize(stream) == 1
    writer.commit(streams, entry="a test")
    eventually(query, f"SELECT COUNT(*) AS n FROM `{NAMED}.{prefix}Singers`", [{"n": 151}])


def test_not_a_number_and_infinities_are_loaded(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    double = ColumnType("V", '{"code":"FLOAT64"}', False, 2)
    for number, text in enumerate(("NaN", "Infinity", "-Infinity"), 1):
        spool.seal(record(START + number * SECOND, [number], columns=(KEY, double), values={"V": text}))
    delivered(spool, prefix, "merge-load", Checkpoint([]))
    found = query(f"SELECT V FROM `{NAMED}.{prefix}Singers` ORDER BY Id")
    assert [str(row["V"]) for row in found] == ["nan", "inf", "-inf"]


def test_a_merge_of_many_columns_with_long_names_is_taken(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    names = [f"c{number:04}".ljust(128, "x") for number in range(2, 901)]
    columns = [ColumnType(name, '{"code":"JSON"}', False, place) for place, name in enumerate(names, 2)]
    spool.seal(record(START + SECOND, [1], columns=(KEY, *columns), values=dict.fromkeys(names, '{"a":1}')))
    assert delivered(spool, prefix, "merge-load", Checkpoint([])) == ["1 rows to 1 tables"]
    assert query(f"SELECT COUNT({names[-1]}) AS n FROM `{NAMED}.{prefix}Singers`") == [{"n": 1}]


def test_the_staleness_of_a_table_is_shown_as_it_was_set(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1]))
    delivered(spool, prefix, "merge", Checkpoint([]))
    query(f"ALTER TABLE `{NAMED}.{prefix}Singers` SET OPTIONS (max_staleness = INTERVAL 900 SECOND)")
    assert service().get_table(f"{NAMED}.{prefix}Singers").max_staleness == "0-0 0 0:15:0"


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_row_just_below_the_largest_is_taken_and_a_larger_one_is_a_dead_letter(
    tmp_path: Path, prefix: str, query: Query, mode: str
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1], values={"Name": "x" * (SURELY_TAKEN - 1000)}))
    spool.seal(record(START + 2 * SECOND, [2], values={"Name": "x" * LARGEST}))
    delivered(spool, prefix, mode, Checkpoint([]))
    name = f"{NAMED}.{prefix}Singers"
    eventually(query, f"SELECT Id, LENGTH(Name) AS n FROM `{name}`", [{"Id": 1, "n": SURELY_TAKEN - 1000}])
    assert sum(file.count for file in DeadLetters(f"{spool.path}-letters/bigquery").files()) == 1


def test_a_table_is_found_by_its_own_spelling_only(tmp_path: Path, prefix: str, query: Query) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1]), record(START + 2 * SECOND, [2], table="singers"))
    delivered(spool, prefix, "append-only", Checkpoint([]))
    for name, number in (("Singers", 1), ("singers", 2)):
        eventually(query, f"SELECT Id FROM `{NAMED}.{prefix}{name}`", [{"Id": number}])


def published(spool: SpoolMaker, prefix: str, mode: str, checkpoint: Checkpoint, **options: object) -> None:
    """Delivers what is sealed, and publishes its cut."""
    config = configured(
        spool.path, project=PROJECT, dataset=DATASET, prefix=prefix, mode=mode, max_staleness="0s", **options
    )
    with SinkRun(config, checkpoint) as one:
        one.only_what_is_sealed()
        one.run()
        Publication(one.delivery).after_batch(cast("SparkSession", None))


def test_tables_are_read_as_of_a_time_between_two_merges(tmp_path: Path, prefix: str, query: Query) -> None:
    spool, checkpoint = SpoolMaker(tmp_path / "spool"), Checkpoint([])
    for number in range(5):
        kind = "UPDATE" if number else "INSERT"
        changes = [
            record(START + (number + 1) * SECOND, [1], table=table, values={"Name": str(number)}, mod_type=kind)
            for table in ("A", "B")
        ]
        spool.seal(*changes)
        published(spool, prefix, "merge-load", checkpoint)
    path = f"{PROJECT}.{DATASET}.{prefix}"
    for number in range(5):
        found = query(
            f"DECLARE cut TIMESTAMP DEFAULT (SELECT as_of FROM `{path}_cuts` WHERE epoch = {number + 1});"
            f" SELECT a.Name AS a, b.Name AS b FROM `{path}A` a FOR SYSTEM_TIME AS OF cut"
            f" JOIN `{path}B` b FOR SYSTEM_TIME AS OF cut USING (Id)"
        )
        assert found == [{"a": str(number), "b": str(number)}]


def test_views_of_appended_tables_are_as_of_the_newest_cut(tmp_path: Path, prefix: str, query: Query) -> None:
    spool, checkpoint = SpoolMaker(tmp_path / "spool"), Checkpoint([])
    spool.seal(record(START + SECOND, [1, 2]))
    spool.seal(record(START + 2 * SECOND, [1], mod_type="DELETE"))
    published(spool, prefix, "append-only", checkpoint, views=True)
    eventually(query, f"SELECT Id, Name FROM `{PROJECT}.{DATASET}.{prefix}Singers_at_cut`", [{"Id": 2, "Name": "n"}])
