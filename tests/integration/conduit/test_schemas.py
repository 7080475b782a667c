"""`serve` with Conduit's schema service: a destination decodes what `tail` prints, with the types of Spanner."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

import grpc
import pytest

from tests.connector.envelope.conduit import ConduitRecord, Data
from tests.integration.conduit.comparison import differences
from tests.integration.conduit.grpc_host import GrpcHost
from tests.integration.conduit.plugins import plugin_at, settings_of
from tests.integration.conduit.schema_registry import CONNECTOR, SchemaRegistry, schema_registry
from tests.integration.conduit.scripted import drawn, records_after

KEYS, PAYLOADS = "sdk.schema.extract.key.enabled", "sdk.schema.extract.payload.enabled"
ON = {KEYS: "true", PAYLOADS: "true"}


@contextmanager
def running(folder: Path, settings: dict[str, str], registry: SchemaRegistry) -> Iterator[GrpcHost]:
    """A plugin that runs beside a registry."""
    with GrpcHost(plugin_at(folder), folder / "log", registry=registry) as host:
        host.configure(settings)
        host.open()
        host.run()
        yield host


def assert_same(decoded: ConduitRecord, structured: ConduitRecord) -> None:
    assert (decoded.position, decoded.operation) == (structured.position, structured.operation)
    assert {name: text for name, text in decoded.metadata.items() if ".schema." not in name} == {
        **structured.metadata,
        "opencdc.readAt": decoded.metadata["opencdc.readAt"],
    }
    for one, other in (
        (decoded.key, structured.key),
        (decoded.before, structured.before),
        (decoded.after, structured.after),
    ):
        if one is None or other is None:
            assert one is other
        else:
            assert differences(one, other) == []


def is_whole(row: Data | None) -> TypeGuard[Data]:
    """True for a row that a destination decodes as it is: Conduit's decoder makes null of an empty array."""
    return row is not None and [] not in row.values()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("capture", ["OLD_AND_NEW_VALUES", "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_a_destination_decodes_the_records_that_tail_prints_by_schemas_that_are_registered_once(
    capture: str, tmp_path: Path
) -> None:
    with drawn(11, value_capture_type=capture) as server, schema_registry() as registry:
        expected = records_after(server)
        with running(tmp_path, settings_of(server) | ON, registry) as host:
            found = host.records(len(expected))
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
        table = one.metadata["opencdc.collection"]
        assert one.metadata["opencdc.key.schema.subject"] == f"{CONNECTOR}:{table}.key"
        if one.before is not None or one.after is not None:
            assert one.metadata["opencdc.payload.schema.subject"] == f"{CONNECTOR}:{table}.payload"
    assert registry.decoded.count("key") == len(found)
    rows = [(one.before, one.after) for one in found]
    assert registry.decoded.count("after") == sum(is_whole(after) for _, after in rows)
    whole = [before for before, after in rows if is_whole(before) and (after is None or after.keys() == before.keys())]
    assert registry.decoded.count("before") == len(whole)
    narrower = capture == "NEW_ROW_AND_OLD_VALUES"
    assert any(before and after and before.keys() < after.keys() for before, after in rows) == narrower
    assert len(registry.requests) < len(found) / 4
    assert {subject: len(versions) for subject, versions in registry.schemas.items()} == {
        subject: registry.requests.count(subject) for subject in registry.schemas
    }


@pytest.mark.long
def test_schemas_keep_their_versions_when_a_plugin_starts_again(tmp_path: Path) -> None:
    with drawn(11) as server, schema_registry() as registry:
        count = len(records_after(server))
        runs = []
        for _ in range(2):
            with running(tmp_path, settings_of(server) | ON, registry) as host:
                runs.append([one.metadata for one in host.records(count)])
    first, second = ([{**metadata, "opencdc.readAt": ""} for metadata in run] for run in runs)
    assert first == second


@pytest.mark.long
@pytest.mark.parametrize(("on", "decoded"), [({KEYS}, {"key"}), ({PAYLOADS}, {"before", "after"}), (set(), set())])
def test_what_is_not_switched_on_is_structured_data_without_a_schema(
    on: set[str], decoded: set[str], tmp_path: Path
) -> None:
    with drawn(11, value_capture_type="OLD_AND_NEW_VALUES") as server, schema_registry() as registry:
        expected = records_after(server)
        with running(tmp_path, settings_of(server) | dict.fromkeys(on, "true"), registry) as host:
            found = host.records(len(expected))
    assert set(registry.decoded) == decoded
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
        for name, setting in (("key", KEYS), ("payload", PAYLOADS)):
            assert (f"opencdc.{name}.schema.version" in one.metadata) == (setting in on)
        if PAYLOADS not in on:
            assert (one.before, one.after) == (other.before, other.after)


@pytest.mark.long
def test_schemas_are_refused_where_conduit_has_no_schema_service(tmp_path: Path) -> None:
    settings = {
        "project": "p",
        "instance": "in",
        "database": "d",
        "change_stream": "s",
        "start": "2026-03-01T10:00:00Z",
    }
    with GrpcHost(plugin_at(tmp_path), tmp_path / "log") as host, pytest.raises(grpc.RpcError) as caught:
        host.configure(settings | ON)
    assert f"{PAYLOADS}: this Conduit has no schema service" in caught.value.details()


@pytest.mark.long
def test_a_schema_that_is_not_registered_ends_the_source_with_one_line_before_a_record_is_sent(
    tmp_path: Path,
) -> None:
    with drawn(11) as server, schema_registry() as registry:
        registry.failure = (grpc.StatusCode.UNKNOWN, "invalid token")
        with running(tmp_path, settings_of(server) | ON, registry) as host:
            with pytest.raises(grpc.RpcError) as caught:
                host.records(1)
            assert host.waiting() == []
        assert '"@message":"reading has failed"' in (tmp_path / "log").read_text()
        registry.failure = None
        with running(tmp_path, settings_of(server) | ON, registry) as host:
            assert len(host.records(3)) == 3
    line = caught.value.details()
    assert line.startswith("Conduit's schema service has not registered ")
    assert "UNKNOWN: invalid token" in line
    assert PAYLOADS in line
    assert "\n" not in line
