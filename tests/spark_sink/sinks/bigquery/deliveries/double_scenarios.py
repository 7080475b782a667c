"""Scenarios on the strict double, whose tables hold what the history says."""

from emulator.bigquery.double import BigQueryDouble
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    NEW_VALUES,
    OLD_AND_NEW,
)
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Scenario,
)

STREAMED = ("append-only", "changelog", "merge")
PARTIAL = (OLD_AND_NEW, NEW_VALUES)


def check(scenario: Scenario) -> None:
    """The tables are what the history says, and no two changes had one number."""
    scenario.check()
    assert isinstance(scenario.server, BigQueryDouble)
    assert [scenario.server.conflicts(*scenario.place(table)) for table in scenario.history.tables] == [0, 0]
