"""A program that appends a spool to tables of Delta where a server refuses what Databricks serverless refuses.

Arguments: the folder of the tables, the spool. It prints the rows of one table, and the error of mode merge, as JSON.
"""

import json
import sys
from collections.abc import Callable

import pyspark.sql.connect.conf as connect_conf
import pyspark.sql.connect.dataframe as connect_dataframe
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import spark_sink
from connector.config.sections import SparkConfig
from connector.errors import ConfigurationError
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.libraries import spark_options
from spark_sink.sources.changes.data_source import FORMAT
from tests.lake_libraries import FEW_ROWS

OFFERED = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
OF_PYSPARK = ("spark.python.", "spark.sql.execution.", "spark.sql.pyspark.")
"""Prefixes of what this client asks for itself, at each function; the one of Databricks is another."""


def refuse_the_rest() -> None:
    """Lets options be read and set only if they are offered, and no rows be persisted."""
    conf = connect_conf.RuntimeConf
    for method in ("get", "set", "unset"):
        setattr(conf, method, only_offered(getattr(conf, method)))

    def persist(*_: object) -> None:
        raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")

    connect_dataframe.DataFrame.persist = persist  # type: ignore[assignment,method-assign]


def only_offered(method: Callable[..., object]) -> Callable[..., object]:
    def call(conf: object, name: str, *others: object) -> object:
        if name not in OFFERED and not name.startswith(OF_PYSPARK):
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available. SQLSTATE: 42K0I")
        return method(conf, name, *others)

    return call


def main() -> None:
    folder, spool = sys.argv[1:]
    sink = TablesConfig.model_validate({"format": "delta", "path": folder})
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**spark_options(sink, SparkConfig()), **FEW_ROWS, "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    refuse_the_rest()
    spark_sink.register(spark)
    events = spark.read.format(FORMAT).option("spool", spool).load()
    for first, last in ((1, 2), (2, 4)):
        some = events.where(f"epoch BETWEEN {first} AND {last}")
        spark_sink.merge_into(some, path=f"{folder}/append", mode="append")
    refused = ""
    try:
        spark_sink.merge_into(events, path=f"{folder}/merge")
    except ConfigurationError as error:
        refused = str(error)
    rows = spark.table(f"delta.`{folder}/append/Singers`").select("Id", "Name").collect()
    sys.stdout.write(json.dumps({"append": sorted([row.Id, row.Name] for row in rows), "merge": refused}))
    spark.stop()


if __name__ == "__main__":
    main()
