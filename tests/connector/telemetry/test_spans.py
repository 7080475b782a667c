"""OpenTelemetry's spans, as its SDK exports them: one an epoch, without what errors say."""

import asyncio
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from connector.daemon.spool_sink import SpoolSink
from connector.errors import SpoolError
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, initialize
from connector.telemetry import spans
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import CUT, NAME, SINGERS, epoch_of, writer_of


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "_tracer", provider.get_tracer("test"))
    return exporter


def sink_of(folder: Path) -> SpoolSink:
    spool = Spool.at(folder / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    return SpoolSink(writer_of(spool), spool, max_bytes=1, metrics=ReaderMetrics())


def test_an_epoch_that_is_sealed_has_a_span_with_its_number_its_mods_its_bytes_and_how_far_it_is_behind(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    sink = sink_of(tmp_path)
    asyncio.run(sink.deliver(epoch_of(1, record(), record(record_sequence="00000002")), list(CUT), final=False))
    (span,) = exporter.get_finished_spans()
    assert span.name == "seal epoch"
    attributes = dict(span.attributes or {})
    assert isinstance(lag := attributes.pop("spanner_cdc.lag_seconds"), float)
    assert lag > 0
    size = sink.spool.manifest(1).size
    assert attributes == {"spanner_cdc.epoch": 1, "spanner_cdc.mods": 2, "spanner_cdc.bytes": size}
    assert span.status.status_code is StatusCode.UNSET


def test_a_span_of_an_error_has_the_errors_type_and_not_its_message(
    tmp_path: Path, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SpoolError("a row's value")

    monkeypatch.setattr(SpoolWriter, "seal", fail)
    with pytest.raises(SpoolError):
        asyncio.run(sink_of(tmp_path).deliver(epoch_of(1, record()), list(CUT), final=False))
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "SpoolError")
    assert "a row's value" not in span.to_json()
