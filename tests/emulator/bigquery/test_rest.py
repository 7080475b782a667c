from collections.abc import Iterator
from datetime import timedelta

import pytest
from google.api_core.exceptions import (
    BadRequest,
    Conflict,
    Forbidden,
    GoogleAPICallError,
    MethodNotImplemented,
    NotFound,
    PreconditionFailed,
    ServiceUnavailable,
    TooManyRequests,
)
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

from emulator.bigquery.double import BigQueryDouble, ColumnDefinition
from tests.emulator.bigquery.caller import DATASET, Caller, calling

ID = SchemaField("id", "INT64", mode="REQUIRED")
NAME = SchemaField("name", "STRING")
NEVER = bigquery.DEFAULT_RETRY.with_predicate(lambda _: False)


@pytest.fixture
def caller() -> Iterator[Caller]:
    with BigQueryDouble.started() as double, calling(double) as called:
        yield called


def alter(caller: Caller, option: str, table: str = "t") -> None:
    statement = f"ALTER TABLE `{caller.name(table)}` SET OPTIONS ({option})"
    caller.tables.query(statement, job_retry=None).result()


def test_a_table_is_shown_as_it_was_created(caller: Caller) -> None:
    inner = (SchemaField("uuid", "STRING"), SchemaField("keys", "STRING", mode="REPEATED"))
    caller.make(
        "t", ID, NAME, SchemaField("j", "JSON"), SchemaField("m", "RECORD", fields=inner), key=["id"], clustering=["id"]
    )
    table = caller.double.table(DATASET, "t")
    assert table.schema == (
        ColumnDefinition("id", "INT64", "REQUIRED"),
        ColumnDefinition("name", "STRING"),
        ColumnDefinition("j", "JSON"),
        ColumnDefinition(
            "m", "STRUCT", fields=(ColumnDefinition("uuid", "STRING"), ColumnDefinition("keys", "STRING", "REPEATED"))
        ),
    )
    assert (table.key, table.clustering, table.max_staleness) == (("id",), ("id",), None)
    shown = caller.tables.get_table(caller.name("t"))
    assert [field.field_type for field in shown.schema] == ["INTEGER", "STRING", "JSON", "RECORD"]
    assert shown.table_constraints is not None
    assert shown.table_constraints.primary_key is not None
    assert shown.table_constraints.primary_key.columns == ["id"]
    assert shown.clustering_fields == ["id"]


def test_datasets_and_tables_are_created_once_and_found_by_name(caller: Caller) -> None:
    caller.make("b", ID)
    caller.make("a", ID)
    assert caller.double.datasets() == [DATASET]
    assert (
        caller.double.tables(DATASET) == [table.table_id for table in caller.tables.list_tables(DATASET)] == ["a", "b"]
    )
    assert caller.tables.get_dataset(DATASET).location == "US"
    with pytest.raises(Conflict) as raised:
        caller.tables.create_dataset(DATASET)
    assert raised.value.errors[0]["reason"] == "duplicate"
    with pytest.raises(Conflict, match=r"Already Exists: Table double:sales\.a"):
        caller.make("a", ID)
    with pytest.raises(NotFound, match="Not found: Dataset double:none") as missing:
        caller.tables.create_table(bigquery.Table("double.none.t", schema=[ID]))
    assert missing.value.errors[0]["reason"] == "notFound"
    with pytest.raises(NotFound, match=r"Not found: Table double:sales\.c"):
        caller.tables.get_table(caller.name("c"))
    with pytest.raises(NotFound, match="Not found: Dataset"):
        caller.tables.get_dataset("none")
    with pytest.raises(NotFound, match="Not found: Project"):
        caller.tables.get_dataset("other.sales")


@pytest.mark.parametrize(
    ("columns", "key", "clustering", "why"),
    [
        ([NAME], ["none"], None, "cannot be found in the schema"),
        ([SchemaField("f", "FLOAT64")], ["f"], None, "type FLOAT64"),
        ([SchemaField("a", "INT64", mode="REPEATED")], ["a"], None, "type ARRAY<INT64>"),
        ([NAME], ["name", "NAME"], None, "named twice"),
        ([SchemaField(f"c{n}", "INT64") for n in range(17)], [f"c{n}" for n in range(17)], None, "16 is the most"),
        ([SchemaField(f"c{n}", "INT64") for n in range(5)], [], [f"c{n}" for n in range(5)], "4 is the most"),
        ([SchemaField("b", "BYTES")], [], ["b"], "type BYTES"),
        ([SchemaField("j", "JSON")], [], ["j"], "type JSON"),
        ([SchemaField("m", "RECORD", fields=[NAME])], [], ["m.name"], "top-level"),
        ([SchemaField("a-b", "STRING")], [], None, "Invalid field name"),
        ([SchemaField("1a", "STRING")], [], None, "Invalid field name"),
        ([SchemaField("a" * 301, "STRING")], [], None, "Invalid field name"),
        ([SchemaField("_table_x", "STRING")], [], None, "reserved"),
        ([SchemaField("_CHANGE_TYPE", "STRING")], [], None, "reserved"),
        ([NAME, SchemaField("Name", "STRING")], [], None, "Duplicate field name"),
        ([SchemaField("x", "FLOAT32")], [], None, "not a valid value"),
        ([SchemaField("x", "RECORD")], [], None, "has no schema"),
        ([], [], None, "Schema has no fields"),
    ],
)
def test_an_invalid_table_is_rejected(
    caller: Caller, columns: list[SchemaField], key: list[str], clustering: list[str] | None, why: str
) -> None:
    with pytest.raises(BadRequest, match=why) as raised:
        caller.make("t", *columns, key=key, clustering=clustering)
    assert raised.value.errors[0]["reason"] == "invalid"
    assert caller.double.tables(DATASET) == []


def test_a_patch_adds_columns_and_relaxes_required(caller: Caller) -> None:
    caller.make("t", ID, SchemaField("m", "RECORD", fields=[NAME]))
    table = caller.tables.get_table(caller.name("t"))
    grown = SchemaField("m", "RECORD", fields=[NAME, SchemaField("more", "STRING")])
    added = SchemaField("tags", "STRING", mode="REPEATED")
    table.schema = [SchemaField("id", "INT64"), grown, NAME, added]
    caller.tables.update_table(table, ["schema"])
    assert caller.double.table(DATASET, "t").schema == (
        ColumnDefinition("id", "INT64"),
        ColumnDefinition(
            "m", "STRUCT", fields=(ColumnDefinition("name", "STRING"), ColumnDefinition("more", "STRING"))
        ),
        ColumnDefinition("name", "STRING"),
        ColumnDefinition("tags", "STRING", "REPEATED"),
    )


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([ID], "Field name is missing in new schema"),
        ([ID, SchemaField("name", "INT64")], "has changed type from STRING to INT64"),
        ([ID, SchemaField("name", "STRING", mode="REQUIRED")], "has changed mode from NULLABLE to REQUIRED"),
        ([ID, SchemaField("name", "STRING", mode="REPEATED")], "has changed mode"),
        ([ID, NAME, SchemaField("x", "INT64", mode="REQUIRED")], "Cannot add required fields"),
        ([ID, NAME, SchemaField("ID", "INT64")], "Duplicate"),
    ],
)
def test_a_patch_cannot_make_other_changes(caller: Caller, schema: list[SchemaField], why: str) -> None:
    caller.make("t", ID, NAME)
    before = caller.double.table(DATASET, "t")
    table = caller.tables.get_table(caller.name("t"))
    table.schema = schema
    with pytest.raises(BadRequest, match=why):
        caller.tables.update_table(table, ["schema"])
    assert caller.double.table(DATASET, "t") == before


def test_a_patch_with_an_outdated_etag_is_rejected(caller: Caller) -> None:
    caller.make("t", ID)
    one, other = (caller.tables.get_table(caller.name("t")) for _ in range(2))
    one.schema = [ID, NAME]
    caller.tables.update_table(one, ["schema"])
    other.schema = [ID, SchemaField("other", "STRING")]
    with pytest.raises(PreconditionFailed) as raised:
        caller.tables.update_table(other, ["schema"])
    assert raised.value.errors[0]["reason"] == "conditionNotMet"
    assert [column.name for column in caller.double.table(DATASET, "t").schema] == ["id", "name"]


def test_a_description_and_labels_are_kept_and_can_be_patched(caller: Caller) -> None:
    table = bigquery.Table(caller.name("t"), schema=[ID])
    table.description, table.labels = "before", {"made": "here"}
    made = caller.tables.create_table(table)
    made.description = "after"
    caller.tables.update_table(made, ["description"])
    shown = caller.tables.get_table(caller.name("t"))
    assert (shown.description, shown.labels) == ("after", {"made": "here"})


def test_max_staleness_can_only_be_set_by_a_statement(caller: Caller) -> None:
    table = bigquery.Table(caller.name("t"), schema=[ID])
    table.max_staleness = "0-0 0 0:15:0"
    made = caller.tables.create_table(table)
    assert made.max_staleness is None
    made.max_staleness = "0-0 0 0:15:0"
    caller.tables.update_table(made, ["max_staleness"])
    assert caller.double.table(DATASET, "t").max_staleness is None
    alter(caller, "max_staleness = INTERVAL 15 MINUTE")
    assert caller.double.table(DATASET, "t").max_staleness == timedelta(minutes=15)
    assert caller.tables.get_table(caller.name("t")).max_staleness == "0-0 0 0:15:0"
    statement = f"alter table `{caller.name('t')}` set options (max_staleness = interval 90 second);"
    caller.tables.query_and_wait(statement)
    assert caller.tables.get_table(caller.name("t")).max_staleness == "0-0 0 0:1:30"


@pytest.mark.parametrize("statement", ["SELECT 1", "ALTER TABLE `double.sales.t` SET DEFAULT COLLATE ''", "nonsense"])
def test_other_statements_are_not_supported(caller: Caller, statement: str) -> None:
    caller.make("t", ID)
    with pytest.raises(BadRequest) as raised:
        caller.tables.query(statement, job_retry=None).result()
    assert raised.value.errors[0]["reason"] == "invalidQuery"
    legacy = bigquery.QueryJobConfig(use_legacy_sql=True)
    with pytest.raises(BadRequest, match="GoogleSQL"):
        caller.tables.query(statement, job_config=legacy, job_retry=None)


def test_a_statement_that_fails_is_a_failed_job(caller: Caller) -> None:
    with pytest.raises(NotFound, match="Not found: Table"):
        alter(caller, "max_staleness = INTERVAL 1 HOUR", "none")
    caller.make("t", ID)
    with pytest.raises(BadRequest, match="between 0 and 24 hours"):
        alter(caller, "max_staleness = INTERVAL 2 DAY")
    statement = f"ALTER TABLE `{caller.name('t')}` SET OPTIONS (max_staleness = INTERVAL 1 DAY)"
    with pytest.raises(NotFound, match="was not found in location EU"):
        caller.tables.query(statement, location="EU", job_retry=None).result()


def test_a_jobs_id_can_be_used_only_once(caller: Caller) -> None:
    caller.make("t", ID)
    statement = f"ALTER TABLE `{caller.name('t')}` SET OPTIONS (max_staleness = INTERVAL 1 MINUTE)"
    caller.tables.query(statement, job_id="once", job_retry=None).result()
    with pytest.raises(Conflict, match=r"Already Exists: Job double:US\.once") as raised:
        caller.tables.query(statement, job_id="once", job_retry=None)
    assert raised.value.errors[0]["reason"] == "duplicate"
    assert caller.tables.get_job("once").state == "DONE"
    with pytest.raises(NotFound):
        caller.tables.get_job("never")
    with pytest.raises(BadRequest, match="Job IDs must be"):
        caller.tables.query(statement, job_id="a b", job_retry=None)


def test_a_denied_resource_is_403_until_it_is_allowed(caller: Caller) -> None:
    caller.make("t", ID)
    caller.double.deny(DATASET, "t")
    with pytest.raises(Forbidden, match=r"Access Denied: Table double:sales\.t") as raised:
        caller.tables.get_table(caller.name("t"))
    assert raised.value.errors[0]["reason"] == "accessDenied"
    caller.make("other", ID)
    caller.double.allow(DATASET, "t")
    caller.tables.get_table(caller.name("t"))
    caller.double.deny(DATASET)
    for name in ("t", "new"):
        with pytest.raises(Forbidden, match="Access Denied: Dataset"):
            caller.tables.get_table(caller.name(name))
    with pytest.raises(Forbidden):
        caller.tables.get_dataset(DATASET)


def test_a_table_can_be_deleted_by_a_client_or_by_the_test(caller: Caller) -> None:
    caller.make("t", ID)
    caller.tables.delete_table(caller.name("t"))
    with pytest.raises(NotFound):
        caller.tables.delete_table(caller.name("t"))
    caller.make("t", ID)
    caller.double.drop(DATASET, "t")
    with pytest.raises(NotFound):
        caller.tables.get_table(caller.name("t"))


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [(503, ServiceUnavailable, "backendError"), (429, TooManyRequests, "rateLimitExceeded")],
)
def test_an_injected_failure_affects_one_request(
    caller: Caller, status: int, error: type[GoogleAPICallError], reason: str
) -> None:
    caller.make("t", ID)
    caller.double.fail_next(status, method="tables.get")
    with pytest.raises(error) as raised:
        caller.tables.get_table(caller.name("t"), retry=NEVER)
    assert raised.value.errors[0]["reason"] == reason
    caller.tables.get_table(caller.name("t"), retry=NEVER)
    caller.double.fail_next(status, 2)
    caller.tables.get_table(caller.name("t"), retry=bigquery.DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.01))
    assert caller.double.failures_left() == 0


def test_a_response_can_be_lost_after_the_request_is_carried_out(caller: Caller) -> None:
    caller.double.fail_next(503, method="tables.insert", after=True)
    with pytest.raises(Conflict):
        caller.make("t", ID)  # the client tries again
    assert caller.double.tables(DATASET) == ["t"]
    assert caller.double.counts.requests["tables.insert"] == 2


def test_unsupported_requests_are_not_implemented(caller: Caller) -> None:
    with pytest.raises(MethodNotImplemented):
        caller.tables.list_models(DATASET).pages.__next__()
    table = bigquery.Table(caller.name("t"), schema=[ID])
    table.require_partition_filter = True
    with pytest.raises(BadRequest, match="only supported for partitioned tables"):
        caller.tables.create_table(table)
    view = bigquery.Table(caller.name("v"))
    view.view_query = "SELECT 1"
    with pytest.raises(MethodNotImplemented, match="view"):
        caller.tables.create_table(view)
    for kind, method in ((404, None), (503, "AppendRows"), ("UNAVAILABLE", "tables.get")):
        with pytest.raises(ValueError):
            caller.double.fail_next(kind, method=method)
    with pytest.raises(KeyError):
        caller.double.fail_next("NO_SUCH_CODE")


@pytest.mark.parametrize("field", ["gone", "id"])
def test_a_table_can_be_partitioned_by_a_time_column(caller: Caller, field: str) -> None:
    table = bigquery.Table(caller.name("t"), schema=[ID, bigquery.SchemaField("at", "TIMESTAMP")])
    table.time_partitioning = bigquery.TimePartitioning(field=field)
    with pytest.raises(BadRequest, match="partition"):
        caller.tables.create_table(table)
    table.time_partitioning = bigquery.TimePartitioning(field="at")
    assert caller.tables.create_table(table).time_partitioning.field == "at"


def test_a_table_can_be_partitioned_by_a_limited_number_of_integer_ranges(caller: Caller) -> None:
    table = bigquery.Table(caller.name("t"), schema=[ID])
    for end, accepted in ((10_001, False), (10_000, True)):
        span = bigquery.PartitionRange(start=0, end=end, interval=1)
        table.range_partitioning = bigquery.RangePartitioning(span, field="id")
        if accepted:
            assert caller.tables.create_table(table).range_partitioning.range_.end == end
        else:
            with pytest.raises(BadRequest, match="partition"):
                caller.tables.create_table(table)
