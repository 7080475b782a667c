"""The options of Spanner Omni: what is filled in, and what is refused with the option's name."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from connector.conduit.settings import configuration_of
from connector.config import SourceConfig
from connector.config.address import DatabaseAddress
from connector.config.loading import validated
from connector.config.omni import OmniServer, Tls
from connector.errors import ConfigurationError
from spark_sink.sinks.spanner.config import SpannerConfig
from spark_sink.sources.changes.in_job import config_document
from spark_sink.sources.changes.options import SourceOptions
from spark_sink.sources.snapshot.options import SnapshotOptions

OMNI: dict[str, Any] = {"edition": "omni", "endpoint": "omni.test:15000", "database": "d", "change_stream": "S"}
TLS = {"ca": "/ca.pem", "certificate": "/c.pem", "key": "/k.pem"}
CLOUD = {"project": "p", "instance": "instance", "database": "d", "change_stream": "S"}


def errors_of(source: dict[str, Any], **sections: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        validated({"source": source, **sections})
    return caught.value.errors


def test_project_and_instance_are_filled_in_and_the_environments_emulator_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "emulator.test:9010")
    address = SourceConfig.model_validate(OMNI).address
    assert address.path == "projects/default/instances/default/databases/d"
    assert (address.host, address.emulator_host, address.is_plain) == ("omni.test:15000", None, True)
    assert SourceConfig.model_validate(CLOUD).address.host == "emulator.test:9010"


def test_files_of_an_encrypted_connection_are_whole_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    address = SourceConfig.model_validate({**OMNI, "tls": {"ca": "ca.pem"}, "token_file": "token"}).address
    assert address.omni == OmniServer(Tls(str(tmp_path / "ca.pem")), str(tmp_path / "token"), "source")
    assert not address.is_plain
    assert SourceConfig.model_validate({**OMNI, "tls": {}}).tls == Tls()
    assert SourceConfig.model_validate({**OMNI, "tls": None}).tls is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"project": "mine"}, "source.project: 'mine': edition omni has only default"),
        ({"instance": "mine"}, "source.instance: 'mine': edition omni has only default"),
        ({"endpoint": None}, "source.endpoint: is needed with edition omni"),
        ({"endpoint": "omni.test"}, "source.endpoint: 'omni.test' is not the address of a server: write HOST:PORT"),
        ({"endpoint": "http://omni.test:15000"}, "source.endpoint: 'http://omni.test:15000' is not the address"),
        ({"endpoint": "omni.test:65536"}, "source.endpoint: 'omni.test:65536' is not the address"),
        ({"endpoint": "omni.test:0"}, "source.endpoint: 'omni.test:0' is not the address"),
        ({"tls": {"certificate": "/c.pem"}}, "source.tls: certificate needs key, too"),
        ({"tls": {"key": "/k.pem"}}, "source.tls: key needs certificate, too"),
        ({"tls": {"cert": "/c.pem"}}, "source.tls.cert: there is no such option"),
        ({"tls": "yes"}, "source.tls: write {} or its options ca, certificate and key"),
        ({"token_file": "/token"}, "source.token_file: a token is not sent in plain text: set tls, too"),
        ({"emulator_host": "localhost:9010"}, "source.emulator_host: with edition omni the address is endpoint"),
        ({"edition": "cloud", "project": "p", "instance": "instance", "tls": {}}, "source.tls: is for edition omni"),
        (
            {"edition": "cloud", "project": "p", "instance": "instance", "token_file": "/token"},
            "source.token_file: is for edition omni",
        ),
        ({"edition": "onmi", "project": "p", "instance": "instance"}, "source.edition: Input should be"),
    ],
)
def test_what_does_not_go_together_is_one_line_with_its_option(options: dict[str, Any], error: str) -> None:
    (found,) = errors_of({**OMNI, **options})
    assert found.startswith(error)


def test_a_sink_has_the_same_options() -> None:
    sink = {"type": "spanner", "edition": "omni", "endpoint": "there.test:15000", "tls": TLS, "database": "d"}
    config = validated({"source": OMNI, "sink": sink})
    assert isinstance(config.sink, SpannerConfig)
    address = config.sink.address(config.source)
    assert (address.path, address.host) == (config.source.address.path, "there.test:15000")
    assert address.omni == OmniServer(Tls(**TLS), None, "sink")
    assert not address.is_database_of(config.source.address)
    assert address.is_database_of(address)
    (found,) = errors_of(OMNI, sink={**sink, "endpoint": None})
    assert found.startswith("sink.endpoint: is needed with edition omni")
    (found,) = errors_of(OMNI, sink={**sink, "project": "mine"})
    assert found.startswith("sink.project: 'mine'")


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("localhost:9010", "127.0.0.1:9010", True),
        ("localhost:9010", "[::1]:9010", True),
        ("LOCALHOST:9010", "localhost:9010", True),
        ("localhost:9010", "127.0.0.1:9011", False),
        ("localhost:9010", "10.0.0.1:9010", False),
        ("10.0.0.1:9010", "10.0.0.1:9010", True),
    ],
)
def test_a_database_of_an_emulator_is_the_same_at_each_name_of_this_machine(
    first: str, second: str, is_one: bool
) -> None:
    one, other = (DatabaseAddress("p", "i", "d", emulator_host=host) for host in (first, second))
    assert one.is_database_of(other) is is_one


def test_a_sink_in_the_cloud_needs_names_of_its_own_beside_a_source_of_omni(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "emulator.test:9010")
    source = SourceConfig.model_validate(OMNI)
    with pytest.raises(ConfigurationError) as caught:
        SpannerConfig(database="d").address(source)
    assert [line.partition(":")[0] for line in caught.value.errors] == ["sink.project", "sink.instance"]
    address = SpannerConfig(database="d", project="p", instance="instance").address(source)
    assert (address.project, address.emulator_host, address.omni) == ("p", "emulator.test:9010", None)
    there = SpannerConfig.model_validate({"database": "d", "edition": "omni", "endpoint": "h:1"})
    assert there.address(SourceConfig.model_validate(CLOUD)).host == "h:1"


def test_spark_sources_take_them_as_options() -> None:
    flat = {"edition": "OMNI", "endpoint": "h:1", "tlsCa": "/ca", "tlsCertificate": "/c", "tlsKey": "/k"}
    named = {**flat, "databaseId": "d", "tokenFile": "/token"}
    address = SnapshotOptions.parse({**named, "table": "T"}).address
    assert address.omni == OmniServer(Tls("/ca", "/c", "/k"), "/token", "")
    assert (address.path, address.host) == ("projects/default/instances/default/databases/d", "h:1")
    parsed = SourceOptions.parse({**named, "changeStream": "S", "spool": "/spool"})
    assert parsed.in_job is not None
    config = validated(orjson.loads(config_document(parsed.in_job, "/spool")))
    assert config.source.address.omni == OmniServer(Tls("/ca", "/c", "/k"), "/token", "source")
    plain = SnapshotOptions.parse(
        {"edition": "omni", "endpoint": "h:1", "databaseId": "d", "table": "T", "tls": "true"}
    )
    assert plain.address.omni == OmniServer(Tls(), None, "")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"endpoint": "h"}, "option endpoint: 'h' is not the address"),
        ({"projectId": "mine"}, "option projectId: 'mine': edition omni has only default"),
        ({"tlsKey": "/k"}, "option tls: key needs certificate"),
        ({"tokenFile": "/token"}, "option tokenFile: a token is not sent in plain text"),
        ({"enableDataboost": "true"}, "option enableDataboost is true, and Spanner Omni has no Data Boost"),
    ],
)
def test_options_of_the_snapshot_source_are_refused_by_their_names(options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SnapshotOptions.parse({"edition": "omni", "endpoint": "h:1", "databaseId": "d", "table": "T", **options})
    (found,) = caught.value.errors
    assert found.startswith(error)


def test_a_pipeline_of_conduit_takes_them_as_settings() -> None:
    given = {
        "edition": "omni",
        "endpoint": "h:1",
        "database": "d",
        "change_stream": "S",
        "start": "2026-01-01T00:00:00Z",
    }
    config = configuration_of({**given, "tls.ca": "/ca", "token_file": "/token"})
    assert config.source.address.omni == OmniServer(Tls("/ca"), "/token", "source")
    assert configuration_of({**given, "tls.enabled": "true"}).source.tls == Tls()
    with pytest.raises(ConfigurationError) as caught:
        configuration_of({**given, "tls.enabled": "false", "tls.ca": "/ca"})
    assert caught.value.errors == ["tls.enabled: it is false, and tls.ca is given: omit one of them"]
    with pytest.raises(ConfigurationError, match="project: it is missing; instance: it is missing"):
        configuration_of({**given, "edition": "cloud"})
