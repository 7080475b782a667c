"""`python -m spark_sink.dead_letters_command`: what it lists, and which dead letters remain after a replay."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
import yaml

from connector.config import Config
from connector.core.schemas import TableSchema
from connector.envelope.envelope import SCHEMA
from connector.spool.reading import schema_path
from spark_sink import dead_letters_command
from spark_sink.dead_letters_command import main
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.dead_letters import DeadLetterFile, DeadLetters, Replay
from tests.spark_sink.sinks.shared.dead_letter_rows import SECRET, put, rows_of
from tests.spark_sink.spools import SINGERS, SpoolMaker
from tests.unread import unread

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}


def configured(folder: Path, **sink: object) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"source": SOURCE, "sink": sink}))
    return str(path)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "dead-letters/bigquery")


@pytest.fixture
def letters(root: str) -> DeadLetters:
    return DeadLetters(root)


@pytest.fixture
def config(tmp_path: Path) -> str:
    return configured(tmp_path, type="bigquery", dataset="x")


class BigQuery:
    """Accepts rows except those whose payload is in `refused`; `sent` has the payloads of each call."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.refused: set[str] = set()
        self.left: dict[str, int] = {}
        self.then: Callable[[], None] = lambda: None

    def tried(self, table: str, *, left: int) -> None:
        self.left[table] = left

    def send(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        payloads = rows.column("payload").to_pylist()
        self.sent.append(payloads)
        self.then()
        return [(n, "again") for n, payload in reversed(list(enumerate(payloads))) if payload in self.refused]


@pytest.fixture
def bigquery(monkeypatch: pytest.MonkeyPatch) -> BigQuery:
    server = BigQuery()

    @contextmanager
    def replay_into(config: Config) -> Iterator[Replay]:
        assert config.sink.type == "bigquery"
        yield server

    module = ModuleType("spark_sink.sinks.bigquery.replay")
    module.__dict__["replay_into"] = replay_into
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return server


def left(letters: DeadLetters) -> list[tuple[str, int, str]]:
    """Each dead letter's file, number and reason."""
    return [
        (file.path, int(json.loads(payload)["Id"]), reason)
        for file in letters.files()
        for rows, reasons in [letters.read(file)]
        for payload, reason in zip(rows.column("payload").to_pylist(), reasons, strict=True)
    ]


def payload(number: int) -> str:
    text: str = rows_of(number).column("payload")[0].as_py()
    return text


# The list.


def test_a_store_without_dead_letters_says_so(root: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "replay"):
        assert main([command, config]) == 0
        assert capsys.readouterr().out == f"{root}: no dead letters\n"
    assert main(["list", config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not Path(root).exists()


def test_dead_letters_are_counted_by_table_and_reason(
    root: str, letters: DeadLetters, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0f_1_0", 1, 2, reason="no such\ncolumn\x1b[2J")
    letters.put("Singers", "0f_2_0", rows_of(3, 4, 5), ["too large", "too large", "no such\ncolumn\x1b[2J"])
    put(letters, "0f_1_0", 6, table="sales.Albums")
    assert main(["list", config]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{root}: 6 dead letters in 3 files",
        "  Singers: 3 dead letters in 2 files: no such column [2J",
        "  Singers: 2 dead letters in 1 file: too large",
        "  sales.Albums: 1 dead letter in 1 file: too large",
    ]
    assert main(["list", config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"table": "Singers", "reason": "no such\ncolumn\x1b[2J", "letters": 3, "files": 2},
        {"table": "Singers", "reason": "too large", "letters": 2, "files": 1},
        {"table": "sales.Albums", "reason": "too large", "letters": 1, "files": 1},
    ]


def test_dead_letters_of_a_bucket_are_listed(tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(DeadLetters(f"{bucket}/letters/bigquery"), "0f_1_0", 1)
    # The endpoint is BigQuery's: Cloud Storage has its own.
    config = configured(
        tmp_path,
        type="bigquery",
        dataset="x",
        dead_letters=f"{bucket}/letters",
        mode="merge-load",
        endpoint="http://127.0.0.1:1",
    )
    assert main(["list", config]) == 0
    assert capsys.readouterr().out.startswith(f"{bucket}/letters/bigquery: 1 dead letter in 1 file\n")


# The replay.


def test_dead_letters_that_were_replayed_are_gone(
    letters: DeadLetters, config: str, bigquery: BigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0b_1_0", 1, 2)
    put(letters, "0a_1_0", 3)
    assert main(["replay", config]) == 0
    assert capsys.readouterr().out == "3 dead letters accepted, 0 rejected again\n"
    assert bigquery.sent == [[payload(1), payload(2)], [payload(3)]]
    assert letters.files() == []


def test_dead_letters_that_are_rejected_again_stay_with_their_new_reason(
    letters: DeadLetters, config: str, bigquery: BigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0f_1_0", 1, 2, 3, 4)
    put(letters, "0f_2_0", 5)
    put(letters, "0f_3_0", 6)
    bigquery.refused = {payload(1), payload(3), payload(5)}
    assert main(["replay", config]) == 1
    assert (
        capsys.readouterr().out
        == "3 dead letters accepted, 3 rejected again (`spanner-cdc dead-letters list` has the reasons)\n"
    )
    assert left(letters) == [
        ("Singers/0f_1_0.jsonl", 1, "again"),
        ("Singers/0f_1_0.jsonl", 3, "again"),
        ("Singers/0f_2_0.jsonl", 5, "again"),
    ]
    bigquery.refused.clear()
    assert main(["replay", config]) == 0
    assert letters.files() == []


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_a_file_whose_last_line_was_removed_is_removed_and_the_others_are_replayed(
    letters: DeadLetters, config: str, bigquery: BigQuery, root: str, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    put(letters, "0f_1_0", 1)
    put(letters, "0f_2_0", 2)
    put(letters, "0f_1_0", 3, table="Albums")
    for path in ("Singers/0f_1_0.jsonl", "Albums/0f_1_0.jsonl"):
        Path(root, path).write_bytes(data)
    assert main(["list", config]) == 0
    assert capsys.readouterr().out.startswith(f"{root}: 1 dead letter in 1 file\n")
    assert main(["replay", config]) == 0
    assert capsys.readouterr().out == "1 dead letter accepted, 0 rejected again\n"
    assert bigquery.left == {"Singers": 0, "Albums": 0}
    assert letters.files() == []


def test_one_tables_dead_letters_are_replayed_alone(
    letters: DeadLetters, config: str, bigquery: BigQuery, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0f_1_0", 1)
    put(letters, "0f_1_0", 2, table="Albums")
    assert main(["replay", config, "--table", "Albums"]) == 0
    assert bigquery.sent == [[payload(2)]]
    assert left(letters) == [("Singers/0f_1_0.jsonl", 1, "too large")]
    capsys.readouterr()
    assert main(["replay", config, "--table", "Albums"]) == 0
    assert capsys.readouterr().out == f"{root}: no dead letters of table Albums, but of Singers\n"


def test_a_replay_that_breaks_off_loses_nothing_and_reports_what_it_did(
    letters: DeadLetters, config: str, bigquery: BigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0f_1_0", 1)
    put(letters, "0f_2_0", 2, 3)

    def refuse() -> None:
        if len(bigquery.sent) == 2:
            raise SinkError("BigQuery cannot be reached", hint="Run it again.")

    bigquery.then = refuse
    assert main(["replay", config]) == 1
    out, err = capsys.readouterr()
    assert out == "1 dead letter accepted, 0 rejected again\n1 file not replayed\n"
    assert err == "spanner-cdc: BigQuery cannot be reached. Run it again.\n"
    assert [number for _, number, _ in left(letters)] == [2, 3]


def test_a_replay_that_is_killed_after_it_sent_a_file_sends_it_again(
    letters: DeadLetters, config: str, bigquery: BigQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(letters, "0f_1_0", 1, 2)

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "replace", die)
        with pytest.raises(SystemExit):
            main(["replay", config])
    assert [number for _, number, _ in left(letters)] == [1, 2]
    assert main(["replay", config]) == 0
    assert bigquery.sent == [[payload(1), payload(2)]] * 2
    assert letters.files() == []


def test_dead_letters_that_the_sink_adds_meanwhile_are_left_for_the_next_replay(
    letters: DeadLetters, config: str, bigquery: BigQuery
) -> None:
    put(letters, "0f_1_0", 1)
    put(letters, "0f_2_0", 2)

    def add() -> None:
        put(letters, "0f_1_0", 1, 3)  # the micro-batch is done again, and more is refused
        put(letters, "0f_2_0", 2, 4)
        put(letters, "0f_3_0", 5)
        bigquery.then = lambda: None

    bigquery.then = add
    assert main(["replay", config]) == 0
    assert bigquery.sent == [[payload(1)]]
    assert [number for _, number, _ in left(letters)] == [1, 3, 2, 4, 5]
    assert main(["replay", config]) == 0
    assert letters.files() == []


def test_where_order_counts_the_rest_of_a_table_waits_for_a_file_that_is_changed(
    letters: DeadLetters,
    config: str,
    bigquery: BigQuery,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_sink.sinks.bigquery.sink_type.BigQuerySink.replays_in_order", True)
    for number in (1, 2, 3):
        put(letters, f"0f_{number}_0", number)
    put(letters, "0f_4_0", 4, table="Albums")
    bigquery.then = lambda: put(letters, "0f_2_0", 2, reason="edited")
    assert main(["replay", config]) == 1
    assert bigquery.sent == [[payload(1)], [payload(4)]]
    assert bigquery.left == {"Singers": 2, "Albums": 0}
    assert capsys.readouterr().out == (
        "2 dead letters accepted, 0 rejected again, 2 not written\n"
        "a file of dead letters was changed meanwhile, and the rest of its table waits for it: replay again\n"
    )
    assert main(["replay", config]) == 0
    assert bigquery.sent[2:] == [[payload(2)], [payload(3)]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_the_file_under_way_finish(
    letters: DeadLetters,
    config: str,
    bigquery: BigQuery,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
) -> None:
    put(letters, "0f_1_0", 1)
    put(letters, "0f_2_0", 2)
    before = signal.getsignal(number)
    bigquery.then = lambda: os.kill(os.getpid(), number)
    assert main(["replay", config]) == code
    assert capsys.readouterr().out == "1 dead letter accepted, 0 rejected again\n1 file not replayed\n"
    assert [number for _, number, _ in left(letters)] == [2]
    assert signal.getsignal(number) is before


# Errors.


def test_a_configuration_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err == f"spanner-cdc: {tmp_path}/none.yaml: there is no such file\n"


def test_an_internal_error_is_one_line_without_values(
    letters: DeadLetters, config: str, bigquery: BigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    put(letters, "0f_1_0", 1)

    def fail() -> None:
        raise KeyError(SECRET)

    bigquery.then = fail
    for verbose in ([], ["--verbose"]):
        assert main(["replay", config, *verbose]) == 1
        told = capsys.readouterr().err
        assert told.endswith("spanner-cdc: internal error: KeyError; run it with --verbose to see where\n")
        assert SECRET not in told
        assert ("letters_command.py" in told) is bool(verbose)
    assert len(left(letters)) == 1


def test_an_answer_that_is_no_index_removes_nothing(
    letters: DeadLetters, config: str, bigquery: BigQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(letters, "0f_1_0", 1)
    monkeypatch.setattr(bigquery, "send", lambda _: [(1, "too far")])
    assert main(["replay", config]) == 1
    assert len(left(letters)) == 1


def test_a_replay_ends_as_it_would_though_nobody_reads_its_result(
    letters: DeadLetters, bigquery: BigQuery, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(letters, "0f_1_0", 1, 2)
    bigquery.refused = {payload(2)}
    recorded: list[int] = []

    def record_left(_: object, __: str, ___: object, files: list[DeadLetterFile]) -> None:
        recorded.append(sum(file.count for file in files))

    monkeypatch.setattr(dead_letters_command, "record_left", record_left)
    with unread("stdout"):
        assert main(["replay", config]) == 1
    assert recorded == [1]
    assert [number for _, number, _ in left(letters)] == [2]


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (PermissionError(13, "denied", "x"), 1)])
def test_a_list_that_is_cut_ends(
    config: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def files(*_: object) -> list[DeadLetterFile]:
        raise error

    monkeypatch.setattr(DeadLetters, "files", files)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert main(["list", config]) == code
    denied = "spanner-cdc: denied: x. Give this user access to that path, or choose another.\n"
    assert capsys.readouterr().err == (denied if code == 1 else "")


def test_a_column_that_the_schema_does_not_have_is_named_once_without_its_value(
    letters: DeadLetters,
    bigquery: BigQuery,
    config: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = TableSchema.of("Singers", SINGERS)
    spool = SpoolMaker(tmp_path / "spool").spool  # spool.path is ./spool unless it is given
    spool.storage.put(schema_path(schema.key), schema.to_json())
    payloads = ['{"Id":"1","Name":"a"}', f'{{"Id":"2","Nmae":"{SECRET}"}}', '{"Id":"3","Nmae":"b"}', "damaged"]
    rows = pa.RecordBatch.from_pylist(
        [{"object": "Singers", "schema_key": schema.key, "payload": one} for one in payloads], schema=SCHEMA
    )
    letters.put("Singers", "0f_1_0", rows, ["edited"] * 4)
    assert main(["replay", config]) == 0
    said = capsys.readouterr().err
    assert said.count("a dead letter has a column that the schema of its table does not have: it is not written") == 1
    assert "table=Singers column=Nmae" in said
    assert SECRET not in said
