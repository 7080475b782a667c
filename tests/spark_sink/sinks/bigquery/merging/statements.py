"""The statements of merge-load, on a server."""

from connector.core.schemas import TableSchema
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.merging.changed_keys import backfill_statement, changed_keys, keep_statement
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.merging.statements import merge_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, bigquery_table
from tests.property import bigquery_merging
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Scenario


class Statements:
    """Runs the statements on a server."""

    def __init__(self, scenario: Scenario, schema: TableSchema = bigquery_merging.SCHEMA) -> None:
        config = scenario.config()
        assert isinstance(config.sink, BigQueryConfig)
        self.client = BigQueryClient(config.sink.target(config.source))
        self.client.create_dataset(scenario.dataset, "US")
        self.table: BigQueryTable = bigquery_table(schema, BigQueryTableOptions(scenario.dataset, "merge-load"))
        self.notes = changed_keys(self.table)
        self.client.create(self.table)
        self.client.create(self.notes)
        self._dataset = scenario.dataset
        self._path = f"{scenario.server.project}.{scenario.dataset}"
        self._loads = 0

    def load(self, lines: bytes) -> None:
        self._loads += 1
        fields = RowMerger(self.table).fields
        self.client.load(self._dataset, "staging", fields, lines, job_id=f"{self._dataset}_{self._loads}")

    def note(self) -> None:
        self._run(keep_statement(self.table, f"{self._path}.{self.notes.name}", f"{self._path}.staging"))

    def merge(self) -> None:
        self._run(merge_statement(self.table, f"{self._path}.{self.table.name}", f"{self._path}.staging"))

    def backfill(self) -> None:
        self._run(
            backfill_statement(
                self.table,
                f"{self._path}.{self.table.name}",
                f"{self._path}.staging",
                f"{self._path}.{self.notes.name}",
            )
        )

    def _run(self, sql: str) -> None:
        self.client.query(sql, self._dataset, self.table.name)
