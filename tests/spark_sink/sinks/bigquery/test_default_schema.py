"""The name of the default schema comes from spool.json; without Spark."""

from collections.abc import Iterator

import orjson
import pyarrow as pa
import pytest

from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from emulator.bigquery.double import BigQueryDouble
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario, Sealing, ids_of


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "of an older program"])
def test_planning_reads_a_segment_only_if_spool_json_does_not_name_the_default_schema(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    scenario = make_scenario(bigquery_double, "append-only", dataset="{0}_{schema}")
    storage = scenario.maker.spool.storage
    header = orjson.loads(storage.read("spool.json").to_pybytes())
    del header["default_schema"]
    storage.replace("spool.json", orjson.dumps(header | ({"default_schema": "d"} if is_named else {})))
    Sealing(scenario)([1])
    read: list[str] = []
    batches = Spool.batches

    def noted(spool: Spool, file: SegmentFile) -> Iterator[pa.RecordBatch]:
        read.append(file.path)
        return batches(spool, file)

    with scenario.sink() as run:
        assert run.plan()
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "batches", noted)
            tasks = run.tasks()
        assert len(read) == (0 if is_named else 1)
        run.deliver([row for task in tasks for row in run.reports(task)])
    assert scenario.place("Singers")[0] == f"{scenario.dataset}_d"
    assert ids_of(scenario) == [1]
