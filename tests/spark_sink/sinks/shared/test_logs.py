"""The log of a sink's process, of its tasks and of Spark: JSON throughout, and never a row's value."""

import logging
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest
from pyspark.errors import PySparkException, QueryContext, QueryContextType
from pyspark.logger import PySparkLogger

from connector.core.records import ColumnType
from spark_sink import session
from tests.spark_sink.processes import program
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

pytestmark = pytest.mark.spark

MARKER = "4711-private-value"
NUMBER = ColumnType("Name", '{"code":"INT64"}', False, 2)


def configured(spool: SpoolMaker, folder: Path) -> str:
    path = folder / "config.yaml"
    node = {
        "source": {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"},
        "spool": {"path": spool.path},
        "sink": {"path": str(folder / "out"), "format": "avro", "dead_letters": str(folder / "dead")},
        "spark": {
            "master": "local[1]",
            "checkpoint": str(folder / "checkpoint"),
            "trigger": "100ms",
            "config": {"spark.driver.memory": "768m"},
        },
    }
    path.write_bytes(orjson.dumps(node))
    return str(path)


@pytest.mark.long
def test_every_line_at_verbose_is_json_and_none_holds_a_value_of_a_row(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 1, range(3), values={"Name": MARKER}))
    spool.seal(record(START + 2, range(3), columns=(KEY, NUMBER), values={"Name": MARKER}))  # becomes dead letters
    spool.restart_at(START + 10**9)
    spool.seal(record(START + 2 * 10**9, range(3), values={"Name": MARKER}))
    (segment,) = spool.spool.manifest(4).files
    (Path(spool.path) / segment.path).write_bytes(MARKER.encode())  # and a task fails
    spool.seal(high=START + 120 * 10**9, final=True)
    arguments = ("-m", "spark_sink", configured(spool, tmp_path), "--verbose", "--log-format", "json")
    with program(tmp_path / "log", *arguments) as sink:
        assert sink.code() != 0
        said = sink.said()
    assert MARKER[:8] not in said
    lines = [orjson.loads(line) for line in said.splitlines()]
    assert all({"severity", "time", "message", "action", "logger"} <= line.keys() for line in lines)
    actions = {line["action"]: line for line in lines}
    assert {"spark", "sink_ready", "epoch_is_a_gap", "sink_failed"} <= actions.keys(), actions.keys()
    assert actions["sink_failed"]["severity"] == "ERROR"
    assert {line["severity"] for line in lines} <= {"DEFAULT", "INFO", "WARNING", "ERROR"}


def test_what_py4j_logs_under_no_name_is_not_logged_again() -> None:
    def record(name: str, path: str) -> logging.LogRecord:
        return logging.LogRecord(name, logging.ERROR, path, 1, "Exception while sending command.", None, None)

    assert not session._is_not_py4js(record("root", "/lib/py4j/java_gateway.py"))
    assert session._is_not_py4js(record("root", "/lib/other.py"))
    assert session._is_not_py4js(record("spark_sink.run", "/lib/py4j/java_gateway.py"))


def test_what_pyspark_logs_of_a_failed_cast_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Mock(QueryContext)
    context.contextType.return_value = QueryContextType.DataFrame
    context.callSite.return_value = "file.py:1"
    error = PySparkException(f"[CAST_INVALID_INPUT] The value '{MARKER}' cannot be cast", contexts=[context])
    monkeypatch.setattr(error, "getMessage", lambda: f"the value '{MARKER}'")
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    monkeypatch.setattr(logger, "disabled", False)
    written = StringIO()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(written)])
    error._log_exception()
    assert MARKER in written.getvalue()
    written.truncate(0)
    session.quiet_pyspark()
    error._log_exception()
    assert not written.getvalue()
