"""The proxy of the environment that a call goes through."""

import urllib.error

import pytest
import requests
from google.auth.exceptions import TransportError

from connector import proxies

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "no_grpc_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"http_proxy": "http://p:1"}, "http_proxy"),
        ({"http_proxy": "http://p:1", "https_proxy": "http://p:1"}, "https_proxy"),
        ({"https_proxy": "http://p:1", "grpc_proxy": "http://p:1"}, "grpc_proxy"),
        ({"https_proxy": "http://p:1", "grpc_proxy": ""}, ""),
        ({"HTTPS_PROXY": "http://p:1"}, ""),  # gRPC reads the small letters only
        ({"https_proxy": "http://p:1", "no_proxy": "other.com, .googleapis.com"}, ""),
        ({"https_proxy": "http://p:1", "no_proxy": "other.com"}, "https_proxy"),
        ({"https_proxy": "http://p:1", "no_proxy": "googleapis.com", "no_grpc_proxy": "other.com"}, "https_proxy"),
    ],
)
def test_the_proxy_of_a_grpc_call_is_the_one_that_grpc_uses(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxies.grpc_proxy("spanner.googleapis.com:443") == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"http_proxy": "http://p:1"}, ""),
        ({"HTTPS_PROXY": "http://p:1"}, "HTTPS_PROXY"),
        ({"all_proxy": "http://p:1"}, "all_proxy"),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "googleapis.com"}, ""),
    ],
)
def test_the_proxy_of_an_https_request_is_the_one_that_requests_uses(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxies.https_proxy("storage.googleapis.com") == expected


def test_an_error_of_a_proxy_is_found_among_the_causes_of_an_error() -> None:
    error = TransportError("no token")
    error.__cause__ = requests.exceptions.ProxyError("refused")
    assert proxies.is_of_proxy(error)
    assert not proxies.is_of_proxy(requests.exceptions.ConnectionError("refused"))


def test_a_session_for_an_emulator_takes_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    session = proxies.direct_session()
    assert session.merge_environment_settings("http://127.0.0.1:1/", {}, None, None, None)["proxies"] == {}


def test_an_address_of_this_machine_is_opened_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    with pytest.raises(urllib.error.URLError) as caught:
        proxies.OPENER.open("http://127.0.0.1:9/", timeout=5)
    assert isinstance(caught.value.reason, ConnectionRefusedError)
