"""The BigQuery double counts requests by hour, and refuses those beyond a quota, as BigQuery does."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import types

from emulator.bigquery.double import BigQueryDouble
from emulator.bigquery.meter import CONNECTIONS, CREATE, LOADS, MERGES, SCANNED, Limit, Meter
from emulator.bigquery.refusals import RefusedError
from tests.emulator.bigquery.caller import DATASET, Caller, calling


class Clock:
    now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_quota_is_a_sliding_window_and_refused_requests_count() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.limits["calls"] = Limit(3, 3600)
    for _ in range(3):
        meter.count("calls")
        clock.now += timedelta(minutes=20)
    meter.count("calls")
    with pytest.raises(RefusedError, match="Exceeds 'calls' quota"):
        meter.count("calls")
    clock.now += timedelta(hours=1)
    meter.count("calls", 2)
    assert meter.total("calls") == 7
    assert meter.worst_hour("calls") == 3


def test_connections_are_counted_while_they_are_open() -> None:
    meter = Meter(Clock())
    meter.most_open = 2
    meter.opened()
    meter.opened()
    with pytest.raises(RefusedError, match="concurrent connections"):
        meter.opened()
    meter.closed()
    meter.opened()
    assert (meter.peak_open, meter.total(CONNECTIONS)) == (2, 4)


@pytest.fixture
def caller() -> Iterator[Caller]:
    with BigQueryDouble.started(count_jobs=True) as double, calling(double) as found:
        yield found


FIELDS = [bigquery.SchemaField("Id", "INT64")]
JSON = bigquery.LoadJobConfig(schema=FIELDS, source_format=bigquery.SourceFormat.NEWLINE_DELIMITED_JSON)


def test_a_stream_beyond_its_quota_is_refused_as_resource_exhausted(caller: Caller) -> None:
    table = caller.make("T", *FIELDS)
    caller.double.meter.limits[CREATE] = Limit(1, 3600)
    caller.pend(table)
    stream = types.WriteStream(type_=types.WriteStream.Type.PENDING)
    with pytest.raises(exceptions.ResourceExhausted, match="Exceeds 'CreateWriteStream' quota"):
        caller.write.create_write_stream(parent=table, write_stream=stream, retry=None)


def test_loads_and_merges_are_counted_with_the_bytes_of_whole_tables_and_a_load_beyond_its_quota_is_refused(
    caller: Caller,
) -> None:
    double = caller.double
    caller.make("T", *FIELDS)
    double.set_size(DATASET, "T", 10**9)
    double.meter.limits[LOADS] = Limit(1, 86400)
    caller.tables.load_table_from_file(BytesIO(b'{"Id":1}'), caller.name("staging"), size=8, job_config=JSON).result()
    sql = f"MERGE `{caller.name('T')}` t USING `{caller.name('staging')}` s ON t.Id = s.Id"
    caller.tables.query(sql, location="US").result()
    assert (double.meter.total(LOADS), double.meter.total(MERGES)) == (1, 1)
    assert double.meter.total(SCANNED) == 10**9 + 10 * 2**20
    with pytest.raises(exceptions.Forbidden) as refused:
        caller.tables.load_table_from_file(BytesIO(b'{"Id":1}'), caller.name("other"), size=8, job_config=JSON)
    assert refused.value.errors[0]["reason"] == "quotaExceeded"


def test_a_double_that_does_not_count_jobs_refuses_those_it_does_not_run() -> None:
    with BigQueryDouble.started() as double, calling(double) as found, pytest.raises(exceptions.GoogleAPICallError):
        found.tables.load_table_from_file(BytesIO(b'{"Id":1}'), found.name("staging"), size=8, job_config=JSON)
