"""The newest published cut of a sink is in the status, in its text and in the metrics: the lag that a user means."""

from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import generate_latest

from connector.config.loading import Config
from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.daemon.states.report import status_of, status_text
from connector.spool import consumers
from connector.spool.sink_report import NOTHING, CutReport, reports_of, write_report
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.exporter import registry_of
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.status import Reporter
from tests.connector.spool.backfill.builders import SOURCE, spool_with_start

T = parse("2026-03-01T10:00:31.250000001Z")
CUT = CutReport(timestamp=T, epoch=3, published_at=T + SECOND, incomplete={"Albums": "it has dead letters"})


def test_a_cut_is_in_the_status_of_its_sink_and_in_no_others(tmp_path: Path) -> None:
    spool, _ = spool_with_start(tmp_path / "spool")
    for name in ("files", "query"):
        consumers.record(spool, name, 0, now=T)
    write_report(spool, "files", NOTHING.model_copy(update={"cut": CUT}))
    config = Config.model_validate({"source": SOURCE.model_dump() | {"instance": "in"}, "spool": {"path": spool.path}})
    metrics, states = ReaderMetrics(), ConsumerStates(spool)
    metrics.reported(reports_of(spool))
    states.read()

    served: dict[str, Any] = msgspec.to_builtins(Reporter(config, metrics, states).status())
    reported = status_of(spool, 0)
    for document in (served, dict[str, Any](reported)):
        files, query = sorted(document["consumers"], key=lambda one: str(one.get("name", one.get("consumer"))))
        assert files["complete_up_to"] == format_rfc3339(T)
        assert files["incomplete_tables"] == {"Albums": "it has dead letters"}
        assert "complete_up_to" not in query
    said = status_text(reported, with_errors=False)
    assert said.count(f"; tables complete up to {format_rfc3339(T)}; not Albums: it has dead letters") == 1
    text = generate_latest(registry_of(metrics, states, config.source)).decode()
    (line,) = (one for one in text.splitlines() if one.startswith("spanner_cdc_sink_complete_timestamp_seconds{"))
    assert 'consumer="files"' in line
    assert float(line.rpartition(" ")[2]) == T / SECOND
