"""No file and no log of a run has what `source.columns` excludes or hashes, and what is delivered follows it."""

import hmac
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.cloud.spanner_v1 import KeySet

from connector.config.loading import load
from connector.core.timestamps import format_rfc3339
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys
from emulator import SampleDatabase
from tests.integration.columns.traces import found_in, kept_files
from tests.integration.commands import PATIENCE, Done, configuration, run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

SALT = "0123456789-salt-of-the-tests-0123456789"
RULES: dict[str, Any] = {
    "exclude": ["People.Secret", "*.token"],
    "hash": {"People.Email": {"algorithm": "sha256", "salt": "${SALT}"}},
}
WITH_KEY: dict[str, Any] = {**RULES, "hash": {**RULES["hash"], "*.PersonId": {"salt": "${SALT}"}}}
TABLES = {
    "googlesql": (
        """CREATE TABLE People (PersonId STRING(MAX) NOT NULL, Email STRING(MAX), Secret STRING(MAX),
        Token BYTES(MAX), Tags ARRAY<STRING(MAX)>, Note STRING(MAX)) PRIMARY KEY (PersonId)""",
        "CREATE TABLE Visits (VisitId INT64 NOT NULL, Token BYTES(MAX), Note STRING(MAX)) PRIMARY KEY (VisitId)",
    ),
    "postgresql": (
        """CREATE TABLE "People" ("PersonId" varchar PRIMARY KEY, "Email" varchar, "Secret" varchar,
        "Token" bytea, "Tags" varchar[], "Note" varchar)""",
        'CREATE TABLE "Visits" ("VisitId" bigint PRIMARY KEY, "Token" bytea, "Note" varchar)',
    ),
}
COLUMNS = ("PersonId", "Email", "Secret", "Token", "Tags", "Note")


def planted(number: int) -> dict[str, str]:
    """The values of a person, each of which is long enough to be no chance."""
    return {name: f"planted-{name.lower()}-{number:04}-x" for name in COLUMNS}


def row(number: int, change: str = "") -> tuple[Any, ...]:
    person = planted(number)
    hidden = [person["Email"] + change, person["Secret"] + change, b64encode((person["Token"] + change).encode())]
    return (person["PersonId"], *hidden, [person["Tags"]], person["Note"] + change)


def digest(text: str) -> str:
    return hmac.new(SALT.encode(), f"STRING\n{text}".encode(), "sha256").hexdigest()


def config_of(folder: Path, sample: SampleDatabase, columns: dict[str, Any], **source: object) -> Path:
    spark = {
        "master": "local[2]",
        "trigger": "500ms",
        "checkpoint": str(folder / "checkpoint"),
        "config": {
            "spark.driver.memory": "768m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(folder / "spark-events"),
            "spark.eventLog.compress": "false",
            "spark.sql.ui.explainMode": "extended",
            "spark.local.dir": str(folder / "spark-local"),
            "spark.shuffle.compress": "false",
        },
    }
    sink = {"path": str(folder / "events"), "rotate_interval": "0s", "dead_letters": str(folder / "dead")}
    options = {"backfill": True, "columns": columns, **source}
    return configuration(folder, sample, source=options, spark=spark, sink=sink)


def change(sample: SampleDatabase) -> str:
    """Inserts, updates and deletes people after the start; returns the timestamp of the last commit."""
    with sample.database.batch() as batch:
        batch.insert("People", COLUMNS, [row(number) for number in range(20, 40)])
        batch.insert("Visits", ("VisitId", "Token", "Note"), [(7, b64encode(b"planted-token-of-a-visit"), "a note")])
    with sample.database.batch() as batch:
        batch.update("People", COLUMNS, [row(number, "-later") for number in range(10, 30)])
    with sample.database.batch() as batch:
        batch.update("People", ("PersonId", "Secret"), [(planted(5)["PersonId"], "planted-secret-alone-x")])
    with sample.database.batch() as batch:
        for number in (6, 25):
            batch.delete("People", KeySet(keys=[[planted(number)["PersonId"]]]))
    assert batch.committed is not None
    return format_rfc3339(int(batch.committed.timestamp_pb().ToNanoseconds()))


def final_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of People that the files amount to, by key; an UPDATE has the columns that it has changed."""
    lines = [line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_bytes().splitlines()]
    events = [event for event in map(json.loads, lines) if event["object"] == "People"]
    rows: dict[str, dict[str, Any]] = {}
    for event in sorted(events, key=lambda one: (one["sort_keys"][1], int(one["sort_keys"][2]), one["sort_keys"][3])):
        key = event["payload"]["PersonId"]
        rows[key] = rows.get(key, {}) | event["payload"]
        if event["source_metadata"]["is_deleted"]:
            del rows[key]
    return rows


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("dialect", "columns", "options"),
    [
        ("googlesql", WITH_KEY, {"workers": 2}),
        pytest.param("postgresql", RULES, {"complete_rows": True}, marks=pytest.mark.slow),
        pytest.param("googlesql", WITH_KEY, {"reader": "executors"}, marks=pytest.mark.slow),
    ],
    ids=["hashed key", "completed rows", "executors"],
)
def test_excluded_and_hashed_values_are_in_no_file_and_no_log(
    dialect: str,
    columns: dict[str, Any],
    options: dict[str, object],
    database: MakeDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(text: str) -> str:
        return digest(text) if "*.PersonId" in columns["hash"] else text

    monkeypatch.setenv("SALT", SALT)
    folder, logs = tmp_path / "run", tmp_path / "logs"
    (folder / "spark-events").mkdir(parents=True)
    logs.mkdir()
    sample = database(dialect=dialect, value_capture_type="OLD_AND_NEW_VALUES")
    sample.run_ddl(*TABLES[dialect])
    with sample.database.batch() as batch:
        batch.insert("People", COLUMNS, [row(number) for number in range(20)])

    def done(name: str, *arguments: str | Path, timeout: float = PATIENCE) -> Done:
        found = run(*arguments, timeout=timeout)
        (logs / name).write_bytes(found.out + found.err.encode())
        return found

    with kept_files(folder / "spark-local", tmp_path / "spark-local"):
        recorded = done("read", "read", config_of(folder, sample, columns, **options, end="now"))
        assert recorded.code == 0, recorded.err
        config = config_of(folder, sample, columns, **options, end=change(sample))
        found = done("run", "run", config, "--verbose", timeout=600)
        assert found.code == 0, found.err
    commands: dict[str, list[str | Path]] = {
        "audit": [config],
        "verify": [config, "--show-keys"],
        "check": [config],
        "status": [config, "--json"],
        "spool": [folder / "spool", "--json"],
    }
    for name, arguments in commands.items():
        found = done(name, name, *arguments)
        assert found.code == 0, f"{name}: {found.err}{found.out.decode()}"

    people = {number: row(number) for number in range(20)} | {number: row(number) for number in range(20, 40)}
    people |= {number: row(number, "-later") for number in range(10, 30)}
    assert final_rows(folder / "events") == {
        key(person[0]): {
            "PersonId": key(person[0]), "Email": digest(person[1]), "Tags": person[4], "Note": person[5]
        }
        for number, person in people.items()
        if number not in (6, 25)
    }  # fmt: skip

    names = {"Email", "Secret", "Token"} | ({"PersonId"} if key("a") != "a" else set())
    hidden = [planted(number)[name].encode() for number in range(40) for name in names]
    hidden += [b"planted-secret-alone-x", b"planted-token-of-a-visit", SALT.encode()]
    shown = [planted(number)[name].encode() for number in range(40) for name in {*COLUMNS} - names]
    found_values = found_in(tmp_path, [*hidden, *shown])
    assert not {value: files for value, files in found_values.items() if value in hidden}
    shuffled = ["spark-local"] if "reader" in options else []
    for place in ("run/spool/segments", "run/events", *shuffled):
        assert any(one.startswith(place) for value in shown for one in found_values[value]), "the search finds nothing"

    address = load(config).source.address
    keys = pa.array(['{"VisitId":"7"}'])
    (block,) = read_keys(address, TableQuery("Visits", ("VisitId", "Token", "Note")), keys, ("VisitId",), None)
    assert block.payloads(["VisitId", "Note"]).to_pylist() == ['{"VisitId":"7","Note":"a note"}']
    assert [column.name for column in block.columns] == ["VisitId", "Note"]

    monkeypatch.setenv("SALT", SALT + "2")
    for command in ("read", "run", "backfill", "audit", "verify", "check"):
        refused = run(command, config)
        assert refused.code in (1, 2)
        assert "the salt of People.Email is another" in refused.err + refused.out.decode(), command
        assert SALT not in refused.err
    monkeypatch.setenv("SALT", SALT)
    fewer = config_of(folder, sample, {**columns, "exclude": ["*.token"]}, **options)
    assert "exclude no longer has People.Secret" in run("read", fewer).err  # Java has lines there, too
    assert "audit its configuration file" in run("audit", folder / "spool").complaint


def test_rules_that_cannot_be_are_refused_before_anything_is_read(
    database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT", SALT)
    sample = database()
    rules = {"exclude": ["Singers.*", "Albums.Tittle"], "hash": {"*.AlbumId": {"salt": "${SALT}"}}}
    found = run("read", config_of(tmp_path, sample, rules, backfill=False, complete_rows=True))
    assert found.code == 2
    for part in (
        "'Singers.*' matches Singers.SingerId, a column of the key",
        "source.columns.exclude: 'Albums.Tittle' matches no column that change stream Everything watches",
        "source.complete_rows: rows of table Albums cannot be looked up, because",
        "source.columns.hash hashes Albums.AlbumId, a column of the key",
    ):
        assert part in found.err
    assert not (tmp_path / "spool" / "spool.json").exists()
