"""Credentials that cannot be used are one line, with what to do, and without anything of their file."""

import json
from pathlib import Path

import pytest

from connector.credentials import VARIABLE
from connector.errors import SpannerCdcError
from connector.spanner.client import tokens_of_application

SECRET = "hunter2"
CASES = {
    "missing": (None, "which does not exist"),
    "text": (SECRET, "which is not JSON"),
    "list": (json.dumps([SECRET]), "it has no type"),
    "untyped": (json.dumps({"client": SECRET}), "it has no type"),
    "wrong-type": (json.dumps({"type": SECRET}), "its type is not one of authorized_user"),
    "incomplete": (json.dumps({"type": "service_account", "private_key": SECRET}), "are not valid"),
    "malformed-key": (
        json.dumps(
            {
                "type": "service_account",
                "client_email": "a@b",
                "token_uri": "https://oauth2.googleapis.com/token",
                "private_key": f"-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n-----END PRIVATE KEY-----",
            }
        ),
        "are not valid",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_credentials_file_that_cannot_be_used_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, fault = CASES[name]
    path = tmp_path / "key.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(SpannerCdcError) as raised:
        tokens_of_application()
    line = str(raised.value)
    assert line.startswith(f"{VARIABLE} names {path}, ")
    assert fault in line
    assert "gcloud auth application-default login" in line
    assert SECRET not in line
    assert "\n" not in line


def test_no_credentials_at_all_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(SpannerCdcError, match=r"no valid Google Cloud credentials were found\. Run `gcloud auth"):
        tokens_of_application()
