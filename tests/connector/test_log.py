"""Logs: as JSON every line has the same fields, and no line holds what an exception says."""

import ast
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import orjson
import pytest

from connector import log
from connector.core.health.hints import with_paths
from connector.errors import SpoolError
from connector.log import JsonFormatter, TextFormatter, action_of
from connector.output import lines_of_json, wrapped
from connector.progress import Progress
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import status_line

ROOT = Path(__file__).parents[2]
SEVERITIES = {"DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"}
SECOND = 10**9


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def made(message: str, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("connector.x", level, "", 0, message, None, None)
    record.fields = fields
    return record


def test_a_line_of_json_has_googles_severity_a_time_a_message_and_an_action() -> None:
    line = orjson.loads(JsonFormatter().format(made("epoch sealed", logging.WARNING, epoch=7)))
    assert line.pop("time").endswith("Z")
    expected = {"severity": "WARNING", "message": "epoch sealed", "action": "epoch_sealed", "logger": "connector.x"}
    assert line == {**expected, "epoch": 7}
    assert orjson.loads(JsonFormatter().format(made("x", action="named")))["action"] == "named"
    assert "action" not in TextFormatter().format(made("x", action="named"))


@pytest.mark.parametrize("json", [False, True])
def test_commands_in_messages_have_the_paths_that_a_process_was_given(
    json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(json=json, verbose=False, named=partial(with_paths, config="my.yaml"))
    log.Log("connector.x").warning("stopped; `spanner-cdc resume CONFIG` continues", action="sink_warning")
    log.say("sink", "new: `spanner-cdc backfill CONFIG` delivers the rows", action="sink_starts")
    log.complain("sink", "`spanner-cdc cuts CONFIG` lists them", action="sink_failed")
    log.Log("connector.x").warning("the spool is full", hint="`spanner-cdc status CONFIG` says more")
    log.Log("connector.x").warning("it failed", reason=SpoolError("it is gone", hint="`spanner-cdc read CONFIG`"))
    lines = capsys.readouterr().err.splitlines()
    for line, command in zip(lines, ("resume", "backfill", "cuts", "status", "read"), strict=True):
        assert f"`spanner-cdc {command} my.yaml`" in line


def test_a_field_does_not_replace_what_every_line_has() -> None:
    line = orjson.loads(JsonFormatter().format(made("read", time="of day", severity="high")))
    assert (line["severity"], line["time_"], line["severity_"]) == ("INFO", "of day", "high")


def calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in ("connector", "spark_sink"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                of = node.func.value
                if isinstance(of, ast.Name) and of.id == "_log" and node.func.attr in log.Log.__dict__:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


@pytest.mark.long
def test_every_message_that_is_not_constant_has_an_action_of_its_own() -> None:
    lines = dict(calls())
    assert len(lines) > 50
    for where, call in lines.items():
        if isinstance(call.args[0], ast.Constant):
            assert 3 < len(action_of(str(call.args[0].value))) < 70, where
        elif not isinstance(call.args[0], ast.Name):
            assert "action" in {keyword.arg for keyword in call.keywords}, where


@pytest.mark.long
def test_an_action_is_kept_where_its_message_was_reworded() -> None:
    messages = [call.args[0].value for _, call in calls() if isinstance(call.args[0], ast.Constant)]
    found = {action_of(str(message)) for message in messages}
    assert set(log.ACTIONS.values()) <= found, "give the words of the new message in connector.log.ACTIONS"


def test_what_an_exception_says_is_in_no_line() -> None:
    value = "4711-private-value"
    try:
        int(value)
    except ValueError as error:
        mine = made("failed")
        mine.exc_info = (type(error), error, error.__traceback__)
        text = f"Task exception was never retrieved\nfuture: <Task exception={error!r}>"
        library = logging.LogRecord("asyncio", logging.ERROR, "", 0, text, None, mine.exc_info)
    for formatter in (JsonFormatter(), TextFormatter()):
        for record in (mine, library):
            line = formatter.format(record)
            assert "ValueError" in line
            assert "4711" not in line


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["read", "missing.yaml", "--log-format", "json"], "missing.yaml"),
        (["read", "missing.yaml", "--strat", "now", "--log-format=json"], "--strat"),
    ],
)
def test_errors_of_a_command_are_lines_of_json_too(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "connector", *arguments]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    (line,) = [orjson.loads(line) for line in done.stderr.splitlines()]
    assert (line["severity"], line["action"], line["exit_code"]) == ("ERROR", "command_failed", 2)
    assert words in line["message"]


def test_a_line_of_a_sink_has_time_and_level_and_the_error_that_ends_it_is_a_line_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure(json=False, verbose=False)
    log.say("spark_sink", "a table stopped", action="table_stopped", level=logging.ERROR, table="T")
    log.complain("spark_sink", "no space", action="sink_failed", exit_code=1)
    logged, ended = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z ERROR spark_sink: a table stopped", logged)
    assert ended == "spark_sink: no space"


def test_what_children_write_past_the_log_becomes_json(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True, verbose=False)
    with lines_of_json():
        os.write(2, b"WARNING: Using incubator modules\n\n")
        log.say("spark_sink", "done", action="sink_done")
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('\u00fc')"], check=False)
    os.write(2, b"after\n")
    *lines, last = capfd.readouterr().err.splitlines()
    parsed = [orjson.loads(line) for line in lines]
    said = {line["message"]: line["action"] for line in parsed}
    assert said == {"WARNING: Using incubator modules": "output", "done": "sink_done", "\u00fc": "output"}
    assert {line["severity"] for line in parsed} <= SEVERITIES
    assert last == "after"
    assert wrapped(b"") == b""


def test_a_process_of_spark_logs_as_its_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(log.STYLE, "json,verbose")
    code = "from connector.log import Log; Log('connector.task').debug('task done', rows=3)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert orjson.loads(done.stderr)["action"] == "task_done"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_drawn_on_a_terminal_and_removed_at_the_end() -> None:
    screen, clock = Screen(), Clock()
    with Progress(log.Log("connector.x"), "verifying", screen, 100, clock=clock) as progress:
        progress.show(1, rows=1)
        assert not screen.getvalue(), "what is done at once is not mentioned"
        clock.now = 10.0
        progress.show(25, rows=2500)
        assert "verifying [#####---------------] 25%  2,500 rows  0:00:30 left" in screen.getvalue()
        assert log.drawn_on() is screen
    assert screen.getvalue().endswith(log.CLEARED)
    assert "\n" not in screen.getvalue()
    assert log.drawn_on() is None


def test_progress_is_plain_lines_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    with Progress(log.Log("connector.x"), "verifying", None, clock=clock) as progress:
        for second in range(25):
            clock.now = float(second)
            progress.show(second, rows=second)
    assert [record.__dict__["fields"] for record in caplog.records] == [{"rows": 10}, {"rows": 20}]


def test_a_line_of_the_log_is_written_over_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    log.configure(json=False, verbose=False)
    log.draw(screen, "50%")
    log.Log("connector.x").info("hello")
    log.draw(screen, "")
    assert f"50%\r{log.CLEARED}" in screen.getvalue()
    assert screen.getvalue().split(log.CLEARED)[-2].endswith("INFO hello\n")


def test_a_reader_that_catches_up_has_a_bar_until_it_has_caught_up() -> None:
    metrics = ReaderMetrics()
    assert status_line(metrics, 0, None, 1000 * SECOND) == "reading  0 mods  0 epochs  0 partitions"
    metrics.watermark = 600 * SECOND
    line = status_line(metrics, 200 * SECOND, None, 1000 * SECOND)
    assert line.startswith("catching up [##########----------] 50%  0:06:40 behind")
    assert status_line(metrics, 200 * SECOND, 605 * SECOND, 1000 * SECOND).startswith("reading  0:06:40 behind")


def test_the_actions_that_the_docs_name_exist() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    (alerts,) = re.findall(r"Actions worth an alert: (.*?)\n\n", page, re.DOTALL)
    given = "".join(path.read_text() for room in ("connector", "spark_sink") for path in (ROOT / room).rglob("*.py"))
    named = re.findall(r"`([a-z_]+)`", alerts.partition("(with")[0])
    assert len(named) > 10
    assert [name for name in named if f'"{name}"' not in given] == []


def test_a_plugins_line_has_hclogs_names_and_six_digits_of_a_second() -> None:
    record = logging.LogRecord("connector.x", logging.WARNING, "", 0, "the spool is full", None, None)
    record.fields = {"bytes": 7}
    record.created = 1_772_359_200.0
    found = orjson.loads(log.HclogFormatter().format(record))
    assert found["@level"] == "warn"
    assert found["@message"] == "the spool is full"
    assert found["@timestamp"] == "2026-03-01T10:00:00.000000Z"
    assert found["bytes"] == 7
