"""The reports of `check` about buckets; the rest is in tests/integration."""

import asyncio

import pytest

from connector.check import findings as check
from connector.check import offline
from connector.config import Config, validated
from connector.errors import ConfigurationError
from tests.cloud_storage import CloudStorage, Fault, Proxy

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}


@pytest.fixture(autouse=True)
def no_spanner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spanner is not called."""

    class Unasked:
        async def __aenter__(self) -> None:
            raise ConfigurationError(["source: not asked"])

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(check, "opened", lambda *_, **__: Unasked())
    monkeypatch.setattr(check, "_TIMEOUT", 60.0)
    monkeypatch.setattr(offline, "_errors_of_java", list)


def errors(spool: str, sink: str) -> list[str]:
    config: Config = validated({"source": SOURCE, "spool": {"path": spool}, "sink": {"path": sink}})
    return asyncio.run(check.findings_of(config)).errors


def test_usable_buckets_are_no_errors(bucket: str) -> None:
    assert errors(f"{bucket}/spool", f"{bucket}/events") == ["source: not asked"]


def test_missing_buckets_are_reported_with_all_other_errors(cloud_storage: CloudStorage) -> None:
    assert cloud_storage.url
    words = "Create it, or choose another with"
    more = "If it was deleted, restore it instead: what was in it is not written again."
    assert errors("gs://no-such-one/spool", "gs://no-such-other") == [
        f"spool.path: cannot use gs://no-such-one/spool: there is no bucket no-such-one. {words} spool.path. {more}",
        f"sink.path: cannot use gs://no-such-other: there is no bucket no-such-other. {words} sink.path. {more}",
        "source: not asked",
    ]


def test_a_denied_permission_is_reported(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.faults.append(Fault(status=403, message="x does not have storage.objects.list access"))
    found = errors(f"{bucket}/spool", f"{bucket}/events")
    assert [error.partition(":")[0] for error in found] == ["spool.path", "sink.path", "source"]
    assert "permission denied (storage.objects.list). Give this account roles/storage.objectUser" in found[0]


def test_permissions_that_are_missing_are_named(bucket: str, gcs_proxy: Proxy) -> None:
    granted = b'{"permissions": ["storage.objects.get", "storage.objects.list"]}'
    gcs_proxy.faults.append(Fault(meets=lambda _, path: "testPermissions" in path, status=200, body=granted))
    missing = "this account lacks storage.objects.create, storage.objects.delete for"
    assert errors(f"{bucket}/spool", f"{bucket}/events")[:2] == [
        f"spool.path: {missing} {bucket}/spool; roles/storage.objectUser has all of them",
        f"sink.path: {missing} {bucket}/events; roles/storage.objectUser has all of them",
    ]


def test_an_unreachable_bucket_is_reported(bucket: str, gcs_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_TIMEOUT", 0.4)
    gcs_proxy.faults.append(Fault())
    assert "Cloud Storage cannot be reached" in errors(f"{bucket}/spool", f"{bucket}/events")[0]
