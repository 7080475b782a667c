"""The double follows the rules in BigQuery's documentation; each test names its page."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core.exceptions import BadRequest, MethodNotImplemented
from google.cloud.bigquery import SchemaField

from emulator.bigquery.double import BigQueryDouble, ColumnDefinition
from emulator.bigquery.statements import LONGEST
from tests.emulator.bigquery.caller import DATASET, Caller, calling, default, message, request

ID = SchemaField("id", "INT64", mode="REQUIRED")
REGION = SchemaField("region", "STRING")
NAME = SchemaField("name", "STRING")
COUNT = SchemaField("count", "INT64")
CHANGE = message(id="int64", name="string", _CHANGE_TYPE="string", _CHANGE_SEQUENCE_NUMBER="string")
PLAIN = message(id="int64", name="string")


class Clock:
    """A clock that only a test advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def caller(clock: Clock) -> Iterator[Caller]:
    with BigQueryDouble.started(now=clock) as double, calling(double) as called:
        yield called


def run(caller: Caller, statement: str, table: str = "t") -> None:
    caller.tables.query(statement.format(f"`{caller.name(table)}`"), job_retry=None).result()


def upsert(identity: int, name: str, sequence: str = "") -> dict[str, object]:
    row: dict[str, object] = {"id": identity, "name": name, "_CHANGE_TYPE": "UPSERT"}
    return {**row, "_CHANGE_SEQUENCE_NUMBER": sequence} if sequence else row


def delete(identity: int, sequence: str) -> dict[str, object]:
    return {"id": identity, "_CHANGE_TYPE": "DELETE", "_CHANGE_SEQUENCE_NUMBER": sequence}


# https://cloud.google.com/bigquery/docs/change-data-capture


def test_a_delete_is_kept_for_two_days_after_which_an_older_upsert_restores_the_row(
    caller: Caller, clock: Clock
) -> None:
    """change-data-capture, deleted data considerations."""
    table = caller.make("t", ID, NAME, key=["id"])
    caller.append(default(table), CHANGE, upsert(1, "a", "1"), delete(1, "3"))
    clock.now += timedelta(days=2)
    caller.append(default(table), CHANGE, upsert(1, "b", "2"))
    assert caller.rows("t") == []
    clock.now += timedelta(seconds=1)
    caller.append(default(table), CHANGE, upsert(1, "b", "2"))
    assert caller.rows("t") == [{"id": 1, "name": "b"}]


def test_of_two_changes_with_the_same_number_the_last_wins(caller: Caller) -> None:
    """change-data-capture, manage custom ordering."""
    table = caller.make("t", ID, NAME, key=["id"])
    caller.append(default(table), CHANGE, upsert(1, "a", "7"))
    caller.append(default(table), CHANGE, upsert(1, "b", "7"))
    assert caller.rows("t") == [{"id": 1, "name": "b"}]
    assert caller.double.conflicts(DATASET, "t") == 1
    caller.append(default(table), CHANGE, delete(1, "7"))
    assert caller.rows("t") == []
    assert caller.double.conflicts(DATASET, "t") == 2


def test_mixing_changes_with_and_without_numbers_counts_as_a_conflict(caller: Caller) -> None:
    """change-data-capture, manage custom ordering."""
    table = caller.make("t", ID, NAME, key=["id"])
    caller.append(default(table), CHANGE, upsert(1, "a", "7"))
    caller.append(default(table), CHANGE, upsert(1, "b"))
    assert caller.double.conflicts(DATASET, "t") == 1


def test_numbers_are_compared_section_by_section_as_documented(caller: Caller) -> None:
    """change-data-capture, format of change sequence numbers: its four examples."""
    table = caller.make("t", ID, NAME, key=["id"])
    pairs = [("77", "7B"), ("FFF/B", "FFF/ABC"), ("BA/FFFFFFFF", "ABC"), ("ABC", "FFF/ABC")]
    for number, (lower, higher) in enumerate(pairs):
        caller.append(default(table), CHANGE, upsert(number, "higher", higher.lower()))
        caller.append(default(table), CHANGE, upsert(number, "lower", lower))
    assert [row["name"] for row in caller.rows("t")] == ["higher"] * 4


def test_changes_and_other_rows_cannot_be_mixed_in_one_connection(caller: Caller) -> None:
    """change-data-capture, limitations."""
    table = caller.make("t", ID, NAME, key=["id"])
    stream = default(table)
    asked = [request(stream, CHANGE, upsert(1, "a", "1")), request(stream, PLAIN, {"id": 2})]
    answers = caller.send(asked)
    assert "not a valid CHANGE_TYPE" in answers[1].error.message
    assert [row["id"] for row in caller.rows("t")] == [1]
    assert not caller.append(stream, PLAIN, {"id": 2}).error.code


def test_a_table_of_more_than_2000_columns_accepts_no_changes(caller: Caller) -> None:
    """change-data-capture, limitations."""
    columns = [SchemaField(f"c{number}", "INT64") for number in range(1999)]
    table = caller.make("t", ID, NAME, *columns, key=["id"])
    assert "at most 2000" in caller.append(default(table), CHANGE, upsert(1, "a", "1")).error.message
    fits = caller.make("fits", ID, NAME, *columns[:1998], key=["id"])
    assert not caller.append(default(fits), CHANGE, upsert(1, "a", "1")).error.code


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET name = 'x' WHERE TRUE",
        "DELETE FROM {} WHERE TRUE",
        "MERGE {} t USING s ON FALSE WHEN MATCHED THEN",
    ],
)
def test_a_table_with_changes_accepts_no_dml(caller: Caller, statement: str) -> None:
    """change-data-capture, limitations."""
    table = caller.make("t", ID, NAME, key=["id"])
    with pytest.raises(MethodNotImplemented):
        run(caller, statement)
    caller.append(default(table), CHANGE, upsert(1, "a", "1"))
    with pytest.raises(BadRequest, match="not supported over a table with active CDC"):
        run(caller, statement)


# https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language
# https://cloud.google.com/bigquery/docs/primary-foreign-keys


@pytest.mark.parametrize("column", ["id", "region"])
@pytest.mark.parametrize(
    "action", ["DROP COLUMN {}", "RENAME COLUMN {} TO other", "ALTER COLUMN {} SET DATA TYPE NUMERIC"]
)
def test_a_column_of_the_key_or_of_the_clustering_cannot_be_changed(caller: Caller, column: str, action: str) -> None:
    """data-definition-language, DROP COLUMN and RENAME COLUMN; primary-foreign-keys, limitations."""
    caller.make("t", ID, REGION, NAME, key=["id"], clustering=["region"])
    before = caller.double.table(DATASET, "t")
    with pytest.raises(BadRequest, match="of the primary key or of the clustering"):
        run(caller, f"ALTER TABLE {{}} {action.format(column)}")
    with pytest.raises(Exception, match="of the primary key or of the clustering"):
        caller.double.retype(DATASET, "t", column, "NUMERIC")
    assert caller.double.table(DATASET, "t") == before


def test_other_columns_can_be_renamed_dropped_and_added_again(caller: Caller) -> None:
    """data-definition-language."""
    table = caller.make("t", ID, NAME, COUNT, key=["id"])
    caller.append(default(table), CHANGE, upsert(1, "a", "1"))
    run(caller, "ALTER TABLE {} RENAME COLUMN name TO name_before")
    run(caller, "ALTER TABLE {} ADD COLUMN name BYTES")
    run(caller, "ALTER TABLE {} ADD COLUMN tags ARRAY<STRING>")
    run(caller, "ALTER TABLE {} DROP COLUMN count")
    assert caller.rows("t") == [{"id": 1, "name_before": "a", "name": None, "tags": []}]
    for statement in ("DROP COLUMN none", "RENAME COLUMN name TO id", "ADD COLUMN name STRING"):
        with pytest.raises(BadRequest):
            run(caller, f"ALTER TABLE {{}} {statement}")


@pytest.mark.parametrize(
    ("kind", "to", "accepted"),
    [("INT64", "NUMERIC", True), ("INT64", "FLOAT64", True), ("NUMERIC", "BIGNUMERIC", True),
     ("INT64", "STRING", False), ("STRING", "BYTES", False), ("FLOAT64", "INT64", False)],
)  # fmt: skip
def test_a_type_can_only_be_widened(caller: Caller, kind: str, to: str, accepted: bool) -> None:
    """data-definition-language, ALTER COLUMN SET DATA TYPE."""
    caller.make("t", ID, SchemaField("v", kind), key=["id"])
    if not accepted:
        with pytest.raises(BadRequest, match="can be coerced"):
            run(caller, f"ALTER TABLE {{}} ALTER COLUMN v SET DATA TYPE {to}")
    else:
        run(caller, f"ALTER TABLE {{}} ALTER COLUMN v SET DATA TYPE {to}")
        assert caller.double.table(DATASET, "t").schema[1] == ColumnDefinition("v", to)


def test_a_table_can_be_renamed_without_a_key_and_hours_after_the_last_rows(caller: Caller, clock: Clock) -> None:
    """primary-foreign-keys, limitations; managing-tables, limitations on renaming tables."""
    caller.make("keyed", ID, NAME, key=["id"])
    with pytest.raises(BadRequest, match="primary key constraints can't be renamed"):
        run(caller, "ALTER TABLE {} RENAME TO other", "keyed")
    table = caller.make("t", ID, NAME)
    caller.append(default(table), PLAIN, {"id": 1})
    with pytest.raises(BadRequest, match="recently"):
        run(caller, "ALTER TABLE {} RENAME TO other")
    clock.now += timedelta(hours=5)
    run(caller, "ALTER TABLE {} RENAME TO other")
    assert caller.rows("other") == [{"id": 1, "name": None}]
    assert caller.double.tables(DATASET) == ["keyed", "other"]


def test_a_key_can_be_added_and_not_removed_once_there_are_changes(caller: Caller) -> None:
    """data-definition-language, ADD PRIMARY KEY; its removal: pulumi-gcp, issue 1175."""
    table = caller.make("t", ID, NAME)
    caller.append(default(table), PLAIN, {"id": 1})
    run(caller, "ALTER TABLE {} ADD PRIMARY KEY (id) NOT ENFORCED")
    assert caller.double.table(DATASET, "t").key == ("id",)
    run(caller, "ALTER TABLE {} DROP PRIMARY KEY")
    run(caller, "ALTER TABLE {} ADD PRIMARY KEY (`id`) NOT ENFORCED")
    caller.append(default(table), CHANGE, upsert(2, "b", "1"))
    with pytest.raises(BadRequest, match="not allowed for table with upsert data"):
        run(caller, "ALTER TABLE {} DROP PRIMARY KEY")
    assert [row["id"] for row in caller.rows("t")] == [1, 2]


def test_a_copy_by_a_query_has_the_rows_but_no_key(caller: Caller) -> None:
    """data-definition-language, CREATE TABLE AS SELECT and DROP TABLE."""
    table = caller.make("t", ID, NAME, key=["id"], clustering=["id"])
    caller.append(default(table), CHANGE, upsert(1, "a", "1"), upsert(2, "b", "1"), delete(2, "2"))
    run(caller, f"CREATE TABLE `{caller.name('copy')}` AS SELECT * FROM {{}}")
    run(caller, "DROP TABLE {}")
    assert caller.rows("copy") == [{"id": 1, "name": "a"}]
    copy = caller.double.table(DATASET, "copy")
    assert (copy.key, copy.clustering, copy.schema[0].mode) == ((), (), "NULLABLE")
    assert caller.double.tables(DATASET) == ["copy"]


def test_a_primary_key_may_have_bytes_but_a_clustering_may_not(caller: Caller) -> None:
    """primary-foreign-keys, limitations; clustered-tables."""
    data = SchemaField("data", "BYTES")
    caller.make("t", data, key=["data"])
    with pytest.raises(BadRequest, match="type BYTES"):
        caller.make("other", data, clustering=["data"])


# https://cloud.google.com/bigquery/quotas


def test_a_statement_has_at_most_1_mb(caller: Caller) -> None:
    """quotas, query jobs: maximum unresolved GoogleSQL query length."""
    caller.make("t", ID, NAME)
    statement = f"ALTER TABLE `{caller.name('t')}` DROP COLUMN name"
    with pytest.raises(BadRequest, match="The query is too large"):
        run(caller, statement + " " * (LONGEST + 1 - len(statement)))
    run(caller, statement + " " * (LONGEST - len(statement)))


def test_a_table_has_at_most_10000_columns(caller: Caller) -> None:
    """quotas, tables: maximum number of columns."""
    with pytest.raises(BadRequest, match="10000 is the most"):
        caller.make("t", *(SchemaField(f"c{number}", "INT64") for number in range(10_001)))
