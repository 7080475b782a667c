"""`spanner-cdc self-test` against Spanner Omni: an emulator with its names, in plain text, with TLS and with mTLS."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_sink.self_test import __main__ as command
from tests.connector.spanner.omni.relayed import context_of, relayed
from tests.connector.spanner.omni.served import Authority
from tests.spark_sink.self_test.forked_commands import fork_commands

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command takes signals in this process; another emulator in the environment is not used."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:9")
    fork_commands(monkeypatch)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("kind", "dialect"),
    [
        pytest.param("plain", "googlesql", marks=pytest.mark.slow),
        pytest.param("tls", "postgresql", marks=pytest.mark.slow),
        ("mutual", "googlesql"),
    ],
)
def test_it_is_good_over_each_connection_and_prints_the_answers_word_for_word(
    default_instance: str, tmp_path: Path, kind: str, dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority.named(tmp_path, "authority")
    arguments = ["--edition", "omni", "--dialect", dialect, "--json", "--seed", "0", "--without-spark"]
    with ExitStack() as stack:
        host = default_instance
        if kind != "plain":
            context = context_of(authority, authority.issue("server"), of_clients=kind == "mutual")
            host = stack.enter_context(relayed(host, context))
            arguments += ["--tls-ca", str(authority.ca)]
        if kind == "mutual":
            client = authority.issue("client")
            arguments += ["--tls-certificate", str(client.certificate), "--tls-key", str(client.key)]
        code = command.main([*arguments, "--endpoint", host])
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert code == 0, report
    assert [(one["name"], one["status"]) for one in report["checks"]] == [
        ("daemon and spool of the stream whole", "good"),
        ("audit of the spool of the stream whole", "good"),
        ("tail of the stream whole", "good"),
        ("tail of the stream changed", "good"),
        ("tail of the stream mutable", "skipped"),
        ("sinks", "skipped"),
    ]
    seen = {one["about"]: one["detail"] for one in report["observations"]}
    assert seen["splits that are asked for by AddSplitPoints"].startswith("refused: UNIMPLEMENTED")
    assert seen["a heartbeat of 100 ms (IMMUTABLE_KEY_RANGE)"].startswith("accepted: ")
    assert any("too far in the past" in detail for detail in seen.values())
    assert "costs nothing: it uses a server of Spanner Omni" in err
    assert "in instance default/default" in err
    assert os.environ.get("SPANNER_EMULATOR_HOST") != default_instance


def test_a_server_that_wants_encryption_ends_it_with_one_line(
    default_instance: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, other = Authority.named(tmp_path, "authority"), Authority.named(tmp_path, "other")
    with relayed(default_instance, context_of(authority, authority.issue("server"))) as host:
        code = command.main(
            ["--edition", "omni", "--endpoint", host, "--tls-ca", str(other.ca), "--json", "--without-spark"]
        )
    report = json.loads(capsys.readouterr().out)
    assert code == 2
    assert report["error"].startswith("source.tls.ca: ")
    assert f"{host} is signed by none that {other.ca} has" in report["error"]
    assert report["left_over"] == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--edition", "omni"], "source.endpoint: is needed with edition omni"),
        (["--edition", "omni", "--endpoint", "h:1", "--project", "p"], "source.project: 'p': edition omni has only"),
        (["--project", "p", "--instance", "i", "--tls"], "source.tls: is for edition omni"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*options, "--json", "--without-spark"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(error)
