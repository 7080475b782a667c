"""Fixtures: scenarios of the BigQuery sink."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from emulator.bigquery.double import BigQueryDouble
from tests.spark_sink.sinks.bigquery.deliveries.histories import NEW_ROW, History
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Delivered, MakeScenario, Scenario, Sealing, Server


@pytest.fixture
def make_scenario(tmp_path: Path) -> MakeScenario:
    """Makes scenarios on a server, in a mode, with options of the sink."""

    def make(server: Server, mode: str, **options: object) -> Scenario:
        return Scenario(server, tmp_path, mode, History(Random(0)), options)

    return make


@pytest.fixture
def double_scenario(bigquery_double: BigQueryDouble, tmp_path: Path) -> MakeScenario:
    """Makes scenarios on the strict double, in a mode, with a seed, a value capture type and options of the sink."""

    def make(mode: str = "merge", seed: int = 0, capture: str = NEW_ROW, **options: object) -> Scenario:
        return Scenario(bigquery_double, tmp_path, mode, History(Random(seed), capture), options)

    return make


@pytest.fixture
def delivered(make_scenario: MakeScenario) -> Delivered:
    """Makes a scenario whose first rows, of these ids and tables, are in BigQuery; returns what seals further ones."""

    def deliver(server: Server, mode: str, ids: Any, *tables: str, **changed: Any) -> tuple[Scenario, Sealing]:
        scenario = make_scenario(server, mode)
        seal = Sealing(scenario)
        seal(ids, *tables, **changed)
        scenario.run()
        return scenario, seal

    return deliver
