"""Every metric moves: in one run with broken queries, churn and a sink, or, of what that run has not, by its source."""

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.config.sections import SourceConfig
from connector.core.health.retries import Cause
from connector.core.health.states import StreamState
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.reading import Spool
from connector.spool.sink_report import CutReport
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.exporter import registry_of
from connector.telemetry.metrics import ReaderMetrics
from emulator import FaultPlan, Scenario, ScriptedServer
from tests.emulator.subjects import sample_of
from tests.integration.commands import Background, configuration

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
DOCUMENTED = {line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `spanner_cdc_")}

SOURCE = SourceConfig(project="my-project", instance="my-instance", database="orders", change_stream="Everything")

ELSEWHERE: dict[str, Callable[[ReaderMetrics], None]] = {
    "spanner_cdc_waiting_partitions": lambda m: setattr(m, "waiting_partitions", 3),
    "spanner_cdc_held_bytes": lambda m: setattr(m, "held_bytes", 3),
    "spanner_cdc_stopped_tables": lambda m: m.stopped_tables.update(Singers="why"),
    "spanner_cdc_failing_seconds": lambda m: m.failing.failed(
        "spanner", Cause("it fails"), time.time_ns() - 60 * SECOND
    ),
    "spanner_cdc_alarms": lambda m: m.stopped_tables.update(Singers="why"),
    "spanner_cdc_sink_incomplete_tables": lambda m: m.cuts.update(
        files=CutReport(timestamp=3 * SECOND, epoch=3, published_at=4 * SECOND, incomplete={"Singers": "why"})
    ),
    "spanner_cdc_shares": lambda m: setattr(m, "shares", 3),
    "spanner_cdc_window_span_seconds": lambda m: setattr(m, "window_span", 3 * SECOND),
    "spanner_cdc_window_seconds": lambda m: setattr(m, "window_seconds", 3.0),
    "spanner_cdc_slowest_share_seconds": lambda m: setattr(m, "slowest_share_seconds", 3.0),
    "spanner_cdc_workers": lambda m: setattr(m, "workers", 3),
    "spanner_cdc_worker_restarts_total": lambda m: setattr(m, "worker_restarts", 3),
    "spanner_cdc_sink_restarts_total": lambda m: setattr(m, "sink_restarts", 3),
    "spanner_cdc_standstills_total": lambda m: setattr(m, "standstills", 3),
    "spanner_cdc_late_records_total": lambda m: setattr(m, "late_records", 3),
    "spanner_cdc_dead_letters_total": lambda m: setattr(m, "dead_letters", 3),
    "spanner_cdc_incomplete_rows_total": lambda m: setattr(m, "incomplete_rows", 3),
    "spanner_cdc_incomplete_transactions_total": lambda m: setattr(m, "incomplete_transactions", 3),
}
"""Metrics that the run below does not have; the tests of the faults that they count cover these."""


def samples(text: str) -> dict[str, float]:
    """The sum of each metric's series, of a histogram its count."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"(spanner_cdc_\w+)(\{.*\})? ([0-9.e+-]+)", line):
            name = match[1]
            if not name.endswith(("_bucket", "_sum", "_created")):
                name = name.removesuffix("_count")
                found[name] = found.get(name, 0.0) + float(match[3])
    return found


@pytest.mark.long
@pytest.mark.spark
def test_every_metric_that_a_run_can_move_moves_in_a_run(tmp_path: Path) -> None:
    now = time.time_ns()
    scenario = Scenario.generate(
        5, origin=now - 2 * SECOND, seconds=600, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE",
        value_capture_type="NEW_ROW", transactions=2000, churn=120, schema_change=False,
    )  # fmt: skip
    with ScriptedServer.started(scenario, faults=FaultPlan(3), begins=now) as server:
        source = {"start": format_rfc3339(scenario.history.origin)}
        config = configuration(
            tmp_path,
            sample_of(server),
            source=source,
            sink={"path": str(tmp_path / "events"), "rotate_interval": "0s"},
            spark={"checkpoint": str(tmp_path / "checkpoint"), "master": "local[1]", "trigger": "500ms"},
        )
        with Background("run", config, log=tmp_path / "log") as daemon:
            daemon.await_log("url=http://")
            url = re.search(r"url=(http://[0-9.]+:\d+)/", daemon.said)
            assert url is not None
            address, seen, moved = f"{url[1]}/metrics", dict[str, set[float]](), set[str]()

            def all_moved() -> bool:
                with urllib.request.urlopen(address, timeout=300) as answer:
                    for name, value in samples(answer.read().decode()).items():
                        seen.setdefault(name, {0.0} if name.endswith("_total") else set()).add(value)
                moved.update(name for name, values in seen.items() if len(values) > 1 or name not in changing)
                return expected <= moved

            constant = {"spanner_cdc_state", "spanner_cdc_build_info", "spanner_cdc_stream_info"}
            changing = DOCUMENTED - constant
            expected = DOCUMENTED - ELSEWHERE.keys()
            try:
                daemon.until(all_moved, "every metric has moved")
            except AssertionError:
                raise AssertionError(f"not moved: {sorted(expected - moved)}\n{daemon.said}") from None
            assert daemon.stop().code == 0, daemon.said


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_counts_rare_events_moves_with_them(name: str, tmp_path: Path) -> None:
    def value(metrics: ReaderMetrics) -> float | None:
        registry = registry_of(metrics, ConsumerStates(Spool.at(tmp_path)), SOURCE)
        found = [one.value for family in registry.collect() for one in family.samples if one.name == name]
        return sum(found) if found else None

    metrics = ReaderMetrics()
    before = value(metrics)
    ELSEWHERE[name](metrics)
    assert value(metrics) != before


def test_of_the_states_one_is_set(tmp_path: Path) -> None:
    registry = registry_of(ReaderMetrics(), ConsumerStates(Spool.at(tmp_path)), SOURCE)
    states = {
        one.labels["state"]: one.value
        for family in registry.collect()
        if family.name == "spanner_cdc_state"
        for one in family.samples
    }
    assert states == {state.value: float(state is StreamState.STARTING) for state in StreamState}


def test_one_metric_names_the_change_stream_under_labels_that_no_target_has(tmp_path: Path) -> None:
    """Prometheus renames a label ``instance`` or ``job`` of a metric, because each target has one."""
    registry = registry_of(ReaderMetrics(), ConsumerStates(Spool.at(tmp_path)), SOURCE)
    (found,) = [family for family in registry.collect() if family.name == "spanner_cdc_stream_info"]
    (sample,) = found.samples
    assert sample.labels == {
        "project": "my-project",
        "spanner_instance": "my-instance",
        "database": "orders",
        "change_stream": "Everything",
    }


def test_labels_of_the_stream_are_on_the_metric_that_names_it(tmp_path: Path) -> None:
    source = SOURCE.model_copy(update={"labels": {"team": "sales"}})
    registry = registry_of(ReaderMetrics(), ConsumerStates(Spool.at(tmp_path)), source)
    labels = {"project": "my-project", "spanner_instance": "my-instance", "database": "orders"}
    labels |= {"change_stream": "Everything", "label_team": "sales"}
    assert registry.get_sample_value("spanner_cdc_stream_info", labels) == 1
