"""What `check` says of buckets; the rest it says is in tests/integration."""

import asyncio

import pytest

from connector.commands import check
from connector.config import Config, validated
from connector.errors import ConfigurationError
from tests.cloud_storage import CloudStorage, Proxy, Trouble

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}


@pytest.fixture(autouse=True)
def no_spanner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of Spanner."""

    class Unasked:
        async def __aenter__(self) -> None:
            raise ConfigurationError(["source: not asked"])

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(check, "opened", lambda *_, **__: Unasked())
    monkeypatch.setattr(check, "_PATIENCE", 0.4)
    monkeypatch.setenv("JAVA_HOME", "/java")


def faults(spool: str, sink: str) -> list[str]:
    config: Config = validated({"source": SOURCE, "spool": {"path": spool}, "sink": {"path": sink}})
    return asyncio.run(check.findings_of(config, emulator_host=None)).faults


def test_buckets_that_can_be_used_are_no_faults(bucket: str) -> None:
    assert faults(f"{bucket}/spool", f"{bucket}/events") == ["source: not asked"]


def test_missing_buckets_are_told_at_once_with_all_else(cloud_storage: CloudStorage) -> None:
    assert cloud_storage.url
    words = "Create it, or choose another with"
    assert faults("gs://no-such-one/spool", "gs://no-such-other") == [
        f"spool.path: cannot use gs://no-such-one/spool: there is no bucket no-such-one. {words} spool.path.",
        f"sink.path: cannot use gs://no-such-other: there is no bucket no-such-other. {words} sink.path.",
        "source: not asked",
    ]


def test_a_permission_that_is_denied_is_told(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.troubles.append(Trouble(status=403, message="x does not have storage.objects.list access"))
    told = faults(f"{bucket}/spool", f"{bucket}/events")
    assert [fault.partition(":")[0] for fault in told] == ["spool.path", "sink.path", "source"]
    assert "permission denied (storage.objects.list). Give this account roles/storage.objectUser" in told[0]


def test_permissions_that_are_missing_are_named(bucket: str, gcs_proxy: Proxy) -> None:
    granted = b'{"permissions": ["storage.objects.get", "storage.objects.list"]}'
    gcs_proxy.troubles.append(Trouble(meets=lambda _, path: "testPermissions" in path, status=200, body=granted))
    missing = "this account lacks storage.objects.create, storage.objects.delete for"
    assert faults(f"{bucket}/spool", f"{bucket}/events")[:2] == [
        f"spool.path: {missing} {bucket}/spool; roles/storage.objectUser has all of them",
        f"sink.path: {missing} {bucket}/events; roles/storage.objectUser has all of them",
    ]


def test_a_network_that_is_cut_is_told(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.troubles.append(Trouble())
    assert "Cloud Storage cannot be reached" in faults(f"{bucket}/spool", f"{bucket}/events")[0]
