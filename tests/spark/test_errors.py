"""The one line that a failure of Spark comes down to."""

import importlib
import pkgutil
import traceback
from collections.abc import Iterator

import connector
import spark_sink
from connector.errors import ConfigurationError, SpannerCdcError
from spark_sink.errors import SinkError, clear_line, is_ours

NOT_IN_SPARK = {"connector.failures.WorkerFaultError", "connector.sink_process.SinkError"}
"""Errors of the daemon's own processes, which no Spark runs in."""

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):
  File "pyspark/sql/worker/utils.py", line 98, in worker_run
    main(infile, outfile)
  File "files.py", line 7, in read
    raise KeyError(row)
KeyError: 'a value of a row'
 SQLSTATE: 38000"""


def test_an_error_of_ours_is_its_own_line() -> None:
    assert clear_line(SinkError("it is full", hint="Free space.")) == "it is full. Free space."
    wrapped = WORKER.replace("KeyError: 'a value of a row'", "spark_sink.errors.SinkError: it is full. Free space.")
    assert clear_line(RuntimeError(wrapped)) == "it is full. Free space."


def test_a_fault_of_a_task_is_told_by_its_kind_and_not_by_what_it_holds() -> None:
    assert clear_line(RuntimeError(WORKER)) == (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read: KeyError; --verbose tells where"
    )


def test_anything_else_is_its_first_line() -> None:
    assert clear_line(RuntimeError("\n first \n second")) == "first"
    assert clear_line(RuntimeError()) == "RuntimeError"


def kinds(of: type[SpannerCdcError]) -> Iterator[type[SpannerCdcError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_each_error_of_ours_is_recognised_in_a_traceback_that_spark_has_wrapped() -> None:
    for package in (connector, spark_sink):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds(SpannerCdcError)}
    ours = {name: kind for name, kind in found.items() if name.startswith(("connector.", "spark_sink."))}
    assert "spark_sink.errors.TableError" in ours
    for name in ours.keys() - NOT_IN_SPARK:
        kind = ours[name]
        try:
            raise kind(["it is full"]) if kind is ConfigurationError else kind("it is full")
        except SpannerCdcError:
            wrapped = RuntimeError(f"[STREAM_FAILED] Failed to plan: {traceback.format_exc()} SQLSTATE: 38000")
        assert is_ours(wrapped), name
        assert clear_line(wrapped) == "it is full"
