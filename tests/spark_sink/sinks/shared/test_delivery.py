"""The epochs that a sink still has to deliver when it drains, without Spark."""

from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connector.config import validated
from connector.spool import consumers
from connector.spool.sink_report import NOTHING, SinkFailure, report_of, write_report
from connector.telemetry import spans
from spark_sink.errors import SinkError
from spark_sink.run import Events, Sink, SinkEvent
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import FileDelivery
from spark_sink.sinks.shared.feed import Feed
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.spools import START, SpoolMaker


def delivery_of(spool: SpoolMaker, folder: Path, interval: int) -> FileDelivery:
    sink = {"type": "files", "path": str(folder / "out"), "rotate_interval": interval}
    config = validated({"source": SOURCE, "spool": {"path": spool.path}, "sink": sink})
    assert isinstance(config.sink, FilesConfig)
    return FileDelivery(config, config.sink, Feed.of(config))


@pytest.mark.parametrize(("recorded", "waits"), [(1, True), (2, False), (3, False)])
def test_files_of_epochs_that_are_sealed_after_a_drain_began_are_not_waited_for(
    spool: SpoolMaker, tmp_path: Path, recorded: int, waits: bool
) -> None:
    delivery = delivery_of(spool, tmp_path, 0)
    spool.fill(2)
    assert delivery.waiting()
    delivery.drain()
    spool.fill(2)
    consumers.record(spool.spool, "files", recorded, now=START)
    assert delivery.waiting() is waits
    assert delivery_of(spool, tmp_path, 0).waiting(), "the sink after it has them to do"


class Query:
    """A query that never has done all that there is."""

    isActive = True  # noqa: N815 - Spark's name

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        return False


def test_a_sink_ends_when_what_it_drains_is_delivered_whatever_else_there_is(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2)
    delivery = delivery_of(spool, tmp_path, 0)
    sink = Sink(cast("SparkSession", None), delivery._config, delivery)
    events: Events = SimpleQueue()
    drain = delivery.drain

    def drained_and_done() -> None:
        drain()
        spool.fill(1)
        consumers.record(spool.spool, "files", 2, now=START)

    delivery.drain = drained_and_done  # type: ignore[method-assign]
    sink._deliver(cast("StreamingQuery", Query()), events)
    assert events.get_nowait() is SinkEvent.QUERY_ENDED
    assert sink._is_drained


class FailedQuery:
    """A query that has failed."""

    isActive = False  # noqa: N815 - Spark's name

    def awaitTermination(self) -> None:  # noqa: N802
        return

    def exception(self) -> Exception:
        return SinkError("the folder is gone")


def test_the_error_of_a_query_that_had_failed_before_a_signal_was_read_is_not_hidden(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.fill(1)
    delivery = delivery_of(spool, tmp_path, 0)
    sink = Sink(cast("SparkSession", None), delivery._config, delivery)
    monkeypatch.setattr(sink, "_start", FailedQuery)
    events: Events = SimpleQueue()
    events.put(SinkEvent.SIGNAL)
    with pytest.raises(SinkError, match="the folder is gone"):
        sink.run(events)
    assert "done" not in capsys.readouterr().err


def test_a_micro_batch_has_a_span_with_its_number_and_the_sinks_name(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "_tracer", provider.get_tracer("test"))
    delivery = delivery_of(spool, tmp_path, 0)
    monkeypatch.setattr(delivery, "run", lambda reports: "")
    Sink(cast("SparkSession", None), delivery._config, delivery)._write(cast("DataFrame", None), 7)
    (span,) = exporter.get_finished_spans()
    assert span.name == "deliver batch"
    assert dict(span.attributes or {}) == {"spanner_cdc.sink": "files", "spanner_cdc.batch": 7}


def test_a_sink_that_had_failed_works_again_after_a_micro_batch_without_events(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may be committed for days, while the failure would be an alarm."""
    failure = SinkFailure(time=START, message="no such folder")
    write_report(spool.spool, "files", NOTHING.after(1, 3, {}).model_copy(update={"failure": failure}))
    delivery = delivery_of(spool, tmp_path, 0)
    monkeypatch.setattr(delivery, "run", lambda reports: "")
    Sink(cast("SparkSession", None), delivery._config, delivery)._write(cast("DataFrame", None), 7)
    assert report_of(spool.spool, "files") == NOTHING.after(1, 3, {})
