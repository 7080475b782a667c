"""The status page says what executors read, how far behind they are, and what each share had."""

import msgspec

from connector.config.loading import Config
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND
from connector.core.windows import Share, ShareReport, Window
from connector.spool.reading import Spool
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.status import Reporter
from spark_sink.reading.windows.job import ReadWindow
from spark_sink.reading.windows.telemetry import WindowTelemetry
from tests.connector.builders import AT

WINDOW = Window(7, AT, AT + 5 * SECOND)
SPAN = {"epoch": 7, "after": "2026-01-02T03:04:05.123456789Z", "up_to": "2026-01-02T03:04:10.123456789Z"}


def snapshot(metrics: ReaderMetrics) -> dict[str, object]:
    source = {"project": "p", "instance": "ii", "database": "d", "change_stream": "s"}
    config = Config.model_validate({"source": source})
    reporter = Reporter(config, metrics, ConsumerStates(Spool.at(config.spool.path)))
    found: dict[str, object] = msgspec.to_builtins(reporter.status())
    return found


def report(share: int, *, bytes_read: int, seconds: float) -> ShareReport:
    cut = (CutPartition("a", AT), CutPartition("b", AT))
    return ShareReport(share, cut, ("b", "c"), ("d",), (), (), {}, 3, 4, bytes_read, 5, 0, seconds)


def test_the_status_page_describes_the_last_window_and_each_of_its_shares() -> None:
    metrics = ReaderMetrics()
    found = ReadWindow([report(1, bytes_read=20, seconds=0.5), report(0, bytes_read=10, seconds=2.25)])
    WindowTelemetry(metrics).sealed(WINDOW, found, 4, 3 * SECOND)
    node = snapshot(metrics)
    assert node["window"] == {
        **SPAN,
        "behind_seconds": 3.0,
        "slowest_share": 0,
        "shares": [
            {"share": 0, "partitions": 4, "records": 3, "bytes": 10, "seconds": 2.25},
            {"share": 1, "partitions": 4, "records": 3, "bytes": 20, "seconds": 0.5},
        ],
    }


def test_the_status_page_says_which_window_is_being_read_until_it_is_sealed() -> None:
    metrics = ReaderMetrics()
    telemetry = WindowTelemetry(metrics)
    telemetry.reading(WINDOW, [Share(0, (CutPartition("a", AT),)), Share(1, (CutPartition("b", AT),))])
    node = snapshot(metrics)
    in_progress = node["window_in_progress"]
    assert isinstance(in_progress, dict)
    assert in_progress.pop("since") > SPAN["up_to"]
    assert in_progress == {**SPAN, "shares": 2, "partitions": 2}
    telemetry.sealed(WINDOW, ReadWindow([report(0, bytes_read=0, seconds=1)]), 1, 0)
    assert "window_in_progress" not in snapshot(metrics)


def test_the_status_page_of_one_process_has_no_window() -> None:
    node = snapshot(ReaderMetrics())
    assert "window" not in node
    assert "window_in_progress" not in node
