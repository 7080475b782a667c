"""The timestamp of `spanner-snapshot` is chosen once, whether Spark requests the schema or is given one."""

import pickle

from pyspark.sql.types import StringType, StructField, StructType

from spark_sink.sources.snapshot.source import SpannerSnapshot
from tests.connector.spanner.snapshot.scripted import TABLE, serving, source_of


def test_every_reader_of_a_data_frame_has_the_timestamp_of_its_data_source() -> None:
    with serving() as server:
        source = source_of(server)
        options = {
            "projectId": source.project,
            "instanceId": source.instance,
            "databaseId": source.database,
            "emulatorHost": server.host,
            "table": TABLE,
        }
        # Spark keeps the data source as it was made, and makes a reader of a copy for each plan.
        made = pickle.dumps(SpannerSnapshot(options))
        schema = StructType([StructField("Id", StringType())])
        timestamps = []
        for _ in range(2):
            timestamps.append(pickle.loads(made).reader(schema)._planned.timestamp)
            server.engine.clock.origin += 1_000_000_000
    assert timestamps[0] == timestamps[1]
