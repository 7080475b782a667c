"""A program that uses tables of Delta in two databases of a Hive metastore, which a folder keeps.

Arguments: the folder, and ``first`` or ``again``. Each run is another session. The first one creates the tables. The
second one finds them by name, writes their epochs once more, and then a new one. It prints the rows as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_sink
from connector.config.sections import SparkConfig
from connector.core.timestamps import SECOND
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import TableOptions, TablesConfig
from spark_sink.sinks.tables.formats.started import started
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.lake_libraries import FEW_ROWS
from tests.spark_sink.sinks.tables.catalogs.namespaces import WIDE, rows, use_two_namespaces
from tests.spark_sink.sinks.tables.reading import epochs
from tests.spark_sink.spools import START, SpoolMaker, record


def main() -> None:
    """Runs once."""
    folder, run = Path(sys.argv[1]), sys.argv[2]
    with started(configuration(folder), TablesConfig.model_validate({"format": "delta", "database": "operas"})) as lake:
        if run == "first":
            use_two_namespaces(lake, "delta", "", folder)
        else:
            write_again(lake, SpoolMaker(folder / "spool", reopen=True))
        found = {name: rows(lake, f"{name}.Singers") for name in ("operas", "films")}
        where = lake.sql("DESCRIBE DETAIL operas.Singers").first()
        assert where is not None
        sys.stdout.write(json.dumps({**found, "location": where["location"]}))


def configuration(folder: Path) -> SparkConfig:
    """As users write it, but for the metastore, which is in a database of Derby."""
    derby = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
    own = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": derby,
    }
    return SparkConfig(master="local[2]", config={**FEW_ROWS, **own})


def write_again(lake: SparkSession, maker: SpoolMaker) -> None:
    """Writes all epochs once more, and a new one."""
    last = maker.spool.latest()
    at = START + 60 * SECOND
    maker.seal(record(at, [5], columns=WIDE, values={"Name": "new", "Age": "5"}))
    merging = TableOptions("delta", None, "operas", "merge", "apply")
    TablesWriter(Feed.at(maker.path), merging, "tables").write(epochs(lake, maker, 1, last + 1))
    spark_sink.merge_into(epochs(lake, maker, 1, last), format="delta", database="films", mode="append")


if __name__ == "__main__":
    main()
