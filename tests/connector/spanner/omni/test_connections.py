"""Connections to Spanner Omni in plain text, with TLS and with certificates of clients; what fails is one line."""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google.auth
import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from connector.config import SourceConfig
from connector.errors import ConfigurationError, SpannerCdcError, StreamError, UnreachableError
from connector.spanner import client as client_module
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import SpannerClient
from connector.spanner.errors import classified, retried
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_partition
from emulator import ScriptedServer
from tests.connector.spanner.omni.served import DAY, Authority, mutual, serving_omni, source_of
from tests.connector.spanner.snapshot.scripted import TABLE, contents, dialect_of, middle, rows_of

Options = Callable[["Authority"], dict[str, Any]]


@pytest.fixture(autouse=True)
def no_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's credentials are never asked for, and no emulator counts."""

    def refuse(**_: object) -> None:
        raise AssertionError("Google's credentials were asked for")

    monkeypatch.setattr(google.auth, "default", refuse)
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:9")
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.named(tmp_path_factory.mktemp("omni"), "authority")


@pytest.fixture(scope="module")
def plain() -> Iterator[ScriptedServer]:
    with serving_omni() as server:
        yield server


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[ScriptedServer]:
    with serving_omni(authority.credentials(authority.issue("server"))) as server:
        yield server


@pytest.fixture(scope="module")
def mutually(authority: Authority) -> Iterator[ScriptedServer]:
    with serving_omni(authority.credentials(authority.issue("mutual"), of_clients=True)) as server:
        yield server


async def clock_of(source: SourceConfig) -> list[list[object]]:
    client = SpannerClient(source.address)
    async with client.connected():
        return await client.rows("SELECT CURRENT_TIMESTAMP")


def fails(server: ScriptedServer, kind: type[SpannerCdcError] = ConfigurationError, **options: Any) -> str:
    """The line of a connection that cannot be made, which comes soon."""
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        asyncio.run(clock_of(source_of(server, **options)))
    assert time.monotonic() - begun < 60.0
    line = str(caught.value)
    assert "\n" not in line
    return line


def works(source: SourceConfig, server: ScriptedServer) -> None:
    """Every client of ours reads: asyncio's, one for threads, and Google's library for snapshots."""
    assert len(asyncio.run(clock_of(source))) == 1
    with BlockingClient(source.address) as blocking:
        assert blocking.session()
    at = middle(server) // 1000 * 1000
    with Snapshot.open(source.address, at) as snapshot:
        found = snapshot.partitions(TableQuery(TABLE, ("Id",)), dialect_of(server))
    rows = [row for one in found for block in read_partition(source.address, one) for row in rows_of(block)]
    assert len(rows) == len(contents(server, TABLE, at)) > 0


def test_plain_text(plain: ScriptedServer) -> None:
    works(source_of(plain), plain)


def test_tls_with_a_ca(encrypted: ScriptedServer, authority: Authority) -> None:
    works(source_of(encrypted, tls={"ca": str(authority.ca)}), encrypted)


def test_a_certificate_of_the_client(mutually: ScriptedServer, authority: Authority) -> None:
    works(source_of(mutually, tls=mutual(authority, authority.issue("reader"))), mutually)


def test_plain_text_to_a_server_with_tls(encrypted: ScriptedServer, mutually: ScriptedServer) -> None:
    for server in (encrypted, mutually):
        assert fails(server) == f"source.tls: the server at {server.host} wants encryption: set source.tls"


def test_tls_to_a_server_in_plain_text(plain: ScriptedServer, authority: Authority) -> None:
    line = fails(plain, tls={"ca": str(authority.ca)})
    assert line == f"source.tls: the server at {plain.host} speaks plain text: omit source.tls"


def test_a_wrong_ca(encrypted: ScriptedServer, tmp_path: Path) -> None:
    other = Authority.named(tmp_path, "other")
    line = fails(encrypted, tls={"ca": str(other.ca)})
    assert line.startswith(f"source.tls.ca: the certificate of the server at {encrypted.host} is signed by none that")
    assert f"{other.ca} has" in line
    assert line.endswith("name the file with the CA of that server")
    assert "signed by none that public CAs have" in fails(encrypted, tls={})


def test_a_server_whose_certificate_has_expired(authority: Authority) -> None:
    expired = authority.issue("expired", begins=-10 * DAY, ends=-DAY)
    with serving_omni(authority.credentials(expired)) as server:
        line = fails(server, UnreachableError, tls={"ca": str(authority.ca)})
    assert line == f"source.endpoint: the certificate of the server at {server.host} has expired. Renew it there."


def test_a_server_whose_certificate_is_for_another_name(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", address="10.0.0.1")
    with serving_omni(authority.credentials(elsewhere)) as server:
        line = fails(server, tls={"ca": str(authority.ca)})
    assert line.startswith(f"source.endpoint: the certificate of the server at {server.host} is for another name")


def test_a_server_that_wants_a_certificate_and_gets_none_or_a_strangers(
    mutually: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    line = fails(mutually, tls={"ca": str(authority.ca)})
    assert line.startswith(f"source.tls.certificate: the server at {mutually.host} ends the connection: it wants")
    strangers = Authority.named(tmp_path, "strangers").issue("stranger")
    line = fails(mutually, tls=mutual(authority, strangers))
    assert line.startswith(
        f"source.tls.certificate: the server at {mutually.host} does not accept {strangers.certificate}"
    )


def test_a_client_whose_certificate_has_expired_or_is_not_valid_yet(
    mutually: ScriptedServer, authority: Authority
) -> None:
    expired = authority.issue("late", begins=-10 * DAY, ends=-DAY)
    ended = f"{dt.datetime.now(dt.UTC) - DAY:%Y-%m-%d}"
    line = fails(mutually, tls=mutual(authority, expired))
    assert line.startswith(f"source.tls.certificate: {expired.certificate} has expired at {ended}")
    early = authority.issue("early", begins=DAY)
    line = fails(mutually, tls=mutual(authority, early))
    assert line.startswith(f"source.tls.certificate: {early.certificate} is valid only from ")


def test_files_that_are_missing_or_do_not_fit_are_all_named(mutually: ScriptedServer, authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("two")
    tls = mutual(authority, one)
    line = fails(mutually, tls={**tls, "key": str(other.key)})
    assert line == (
        f"source.tls.key: {other.key} does not fit the certificate {one.certificate}: name the key of that one"
    )
    folder = authority.folder
    line = fails(mutually, tls={"ca": f"{folder}/no.pem", "certificate": f"{folder}/no.crt", "key": f"{folder}/no.key"})
    assert [part.partition(":")[0] for part in line.split("; ")] == [
        "source.tls.ca",
        "source.tls.certificate",
        "source.tls.key",
    ]
    assert line.count("No such file or directory") == 3


def test_files_that_hold_something_else_are_named_and_not_shown(mutually: ScriptedServer, authority: Authority) -> None:
    issued = authority.issue("odd")
    secret = authority.folder / "secret.txt"
    secret.write_text("-----BEGIN hunter2 PRIVATE KEY-----")
    tls = mutual(authority, issued)
    for option, what in (("ca", "no certificate"), ("certificate", "no certificate"), ("key", "no private key")):
        line = fails(mutually, tls={**tls, option: str(secret)})
        assert line == f"source.tls.{option}: {secret} has {what} in PEM"
    empty = authority.folder / "empty.pem"
    empty.write_text("")
    assert fails(mutually, tls={**tls, "ca": str(empty)}) == f"source.tls.ca: {empty} is empty"
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    issued.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter2"),
        )
    )
    assert "has a passphrase" in fails(mutually, tls=tls)


def test_a_server_that_is_absent(plain: ScriptedServer, authority: Authority) -> None:
    for tls in (None, {"ca": str(authority.ca)}):
        line = fails(plain, UnreachableError, endpoint="127.0.0.1:9", tls=tls)
        assert line.startswith("no Spanner Omni server answers at 127.0.0.1:9: ")
        assert line.endswith("correct source.endpoint.")


def test_a_token_is_sent_and_read_again_when_it_changes(
    encrypted: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    source = source_of(encrypted, tls={"ca": str(authority.ca)}, token_file=str(file))

    async def main() -> None:
        client = SpannerClient(source.address)
        async with client.connected():
            assert await client.rows("SELECT CURRENT_TIMESTAMP")
            encrypted.want_token("second")
            file.write_text("second-but-longer\n")
            file.write_text("second\n")
            assert await client.rows("SELECT CURRENT_TIMESTAMP")

    encrypted.want_token("first")
    try:
        asyncio.run(main())
        works(source, encrypted)
    finally:
        encrypted.want_token(None)


def test_a_token_that_is_refused_or_missing_is_one_line_without_the_token(
    encrypted: ScriptedServer,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(client_module, "SETUP_TIMEOUT", 1.0)
    file = tmp_path / "token"
    options: dict[str, Any] = {"tls": {"ca": str(authority.ca)}, "token_file": str(file)}
    lines = [fails(encrypted, **options)]
    assert lines[-1].startswith(f"source.token_file: {file}: No such file or directory")
    file.write_text("hunter2 hunter2\n")
    lines.append(fails(encrypted, **options))
    assert lines[-1] == f"source.token_file: {file} is not one line with a token"
    file.write_text("hunter2")
    encrypted.want_token("another")
    try:
        lines.append(fails(encrypted, StreamError, **options))
        assert "UNAUTHENTICATED" in lines[-1]
        assert "Write a new token to source.token_file" in lines[-1]
        lines.append(fails(encrypted, StreamError, tls=options["tls"]))
        assert lines[-1].endswith(
            "Set source.token_file, or a client's certificate: the server wants to know the user."
        )
        with BlockingClient(source_of(encrypted, **options).address) as blocking:
            with pytest.raises(grpc.RpcError) as caught:
                blocking.session()
            cause = retried(blocking.failed(caught.value), blocking.host)
        assert "Write a new token to source.token_file" in cause.hint
        file.unlink()
        with BlockingClient(source_of(encrypted, tls=options["tls"]).address) as blocking:
            assert "hunter2" not in repr(blocking.host)
    finally:
        encrypted.want_token(None)
    assert "hunter2" not in "".join(lines) + caplog.text


def test_a_token_file_that_goes_missing_is_a_cause_of_retries(
    encrypted: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    source = source_of(encrypted, tls={"ca": str(authority.ca)}, token_file=str(file))
    with BlockingClient(source.address) as blocking:
        file.unlink()
        with pytest.raises(grpc.RpcError) as caught:
            blocking.session()
        cause = retried(blocking.failed(caught.value), blocking.host)
        assert cause.text == "there is no token for Spanner"
        assert "source.token_file" in cause.hint
        file.write_text("second")
        assert blocking.session()


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "has expired: renew it there"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "no CA of source.tls.ca"),
        ("Hostname Verification Check failed.", "another name than source.endpoint"),
        ("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER", "omit source.tls"),
        ("Failed to create security handshaker.", "the key must fit the certificate"),
    ],
)
def test_a_connection_that_breaks_later_has_a_hint(message: str, hint: str) -> None:
    assert hint in retried(classified(grpc.StatusCode.UNAVAILABLE, message), "h:1").hint


def test_behind_a_proxy_the_variable_is_named(
    encrypted: ScriptedServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    line = fails(encrypted, UnreachableError, tls={"ca": str(authority.ca)})
    assert "proxy that https_proxy names" in line
