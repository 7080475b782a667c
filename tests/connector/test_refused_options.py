"""Values that a configuration refuses although they are valid: they would mean something else than was meant."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connector.config.loading import load, validated
from connector.config.sinks import SinkConfig
from connector.errors import ConfigurationError

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}


def errors(**sections: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        validated(sections)
    return caught.value.errors


@pytest.mark.parametrize("text", ["${NO_SUCH:-x}", "${NO_SUCH:?}", "${no-such}", "a/${}", "${"])
def test_what_only_looks_like_a_variable_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    source = ", ".join(f"{name}: {value}" for name, value in SOURCE.items())
    path.write_text(f"source: {{{source}}}\nspool: {{path: '{text}'}}\n")
    with pytest.raises(ConfigurationError, match=r"spool\.path: it has \$\{, but no variable: write \$\{NAME\}, "):
        load(path)


def test_options_of_spark_and_values_of_variables_may_have_what_looks_like_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", "$a${b:-c}")
    path = tmp_path / "c.yaml"
    source = ", ".join(f"{name}: {value}" for name, value in SOURCE.items())
    option = "spark.hadoop.hadoop.tmp.dir: '/tmp/${user.name}'"
    path.write_text(
        f"source: {{{source}}}\nspark: {{config: {{{option}}}}}\nstatus: {{token: '${{VALUE}}'}}\n", encoding="utf-8"
    )
    config = load(path)
    assert config.spark.config == {"spark.hadoop.hadoop.tmp.dir": "/tmp/${user.name}"}
    assert config.status.token == "$a${b:-c}"


def test_a_secret_that_is_the_name_of_a_variable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    source = ", ".join(f"{name}: {value}" for name, value in SOURCE.items())
    columns = "columns: {hash: {Users.Email: {salt: $SALT_OF_COLUMNS}}}"
    path.write_text(f"source: {{{source}, {columns}}}\nstatus: {{token: $TOKEN}}\n")
    with pytest.raises(ConfigurationError) as raised:
        load(path)
    assert raised.value.errors == [
        f"{path}: {option}: it would be a secret that begins with $: a variable is written ${{NAME}}"
        for option in ("source.columns.hash.Users.Email.salt", "status.token")
    ]


@pytest.mark.parametrize("option", ["spool.path", "spark.checkpoint", "sink.path", "sink.dead_letters"])
@pytest.mark.parametrize("sink", ["files", "tables"])
def test_an_empty_path_is_refused(sink: str, option: str) -> None:
    section, name = option.split(".")
    node: dict[str, Any] = {"source": SOURCE, "sink": {"type": sink}}
    for text in ("", " "):
        node.setdefault(section, {})[name] = text
        with pytest.raises(ConfigurationError) as raised:
            validated(node)
        assert str(raised.value) == f"{option}: it is empty: name a folder, or omit it"


def test_a_sink_of_ones_own_with_other_dead_letters_by_default_refuses_an_empty_path_too() -> None:
    class Own(SinkConfig):
        type: str = "own"
        dead_letters: str = "./rejected"

    assert Own().dead_letters == "./rejected"
    with pytest.raises(ValidationError, match="it is empty: name a folder, or omit it"):
        Own(dead_letters="")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ({"host": "0.0.0.0", "token": ""}, "status.token: it is empty, so that everyone could read the status"),
        ({"host": "0.0.0.0", "token": " \n"}, "status.token: it is empty, so that everyone could read the status"),
        ({"token": "a\nb"}, "status.token: it has control characters, which no client can send"),
        ({"host": "a..b"}, "status.host: 'a..b' is not an address of a machine: use 127.0.0.1 or 0.0.0.0"),
        ({"host": ""}, "status.host: '' is not an address of a machine"),
    ],
)
def test_a_status_page_that_would_be_open_or_closed_to_all_is_refused(status: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(error)):
        validated({"source": SOURCE, "status": status})


def test_a_token_is_without_the_line_feed_of_its_file() -> None:
    assert validated({"source": SOURCE, "status": {"host": "0.0.0.0", "token": "abc\n"}}).status.token == "abc"
    assert validated({"source": SOURCE, "status": {"host": "0.0.0.0"}}).status.token == ""
    assert validated({"source": SOURCE, "status": {"token": ""}}).status.token == ""


def test_a_type_of_sink_that_there_is_not_hides_no_other_error() -> None:
    found = errors(source=SOURCE, sink={"type": "bogus"}, foo=1, spool={"pth": 1})
    assert [error.split(":")[0] for error in found] == ["spool.pth", "sink.type", "foo"]
    assert found[0].endswith("did you mean spool.path?")


def test_an_alias_within_itself_is_no_internal_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source: &a {project: *a}\n")
    with pytest.raises(ConfigurationError, match="is not YAML: an alias is a part of what it stands for"):
        load(path)


@pytest.mark.parametrize("endpoint", ["https://user:pw@host/", "user@host", "host:0", "host:1:2", "dns:///host", "a b"])
def test_an_endpoint_that_is_no_host_is_refused_and_not_repeated(endpoint: str) -> None:
    (error,) = errors(source={**SOURCE, "endpoint": endpoint})
    assert error == "source.endpoint: it is not the address of an endpoint: write HOST or HOST:PORT"


@pytest.mark.parametrize("endpoint", [None, "", "spanner.us-central1.rep.googleapis.com", "host:443", "[::1]:9"])
def test_an_endpoint_is_a_host_with_or_without_a_port(endpoint: str | None) -> None:
    assert validated({"source": {**SOURCE, "endpoint": endpoint}}).source.endpoint == endpoint
