"""The one line that is printed for an error of Spark, and what the error means."""

import importlib
import pkgutil
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, StreamingQueryException

import connector
import spark_sink
from connector.errors import (
    FAILED_PERMANENTLY,
    TRANSIENT,
    ConfigurationError,
    SpannerCdcError,
    SpoolError,
    SpoolInUseError,
    StorageUnavailableError,
    TakenOverError,
    UnreachableError,
)
from spark_sink.errors import (
    DestinationUnavailableError,
    SinkError,
    clear_line,
    is_of_statement,
    is_own,
    is_permanent,
    is_unanswered,
)
from spark_sink.failures import SPARK_ERRORS, Meaning, code_of, line_and_code, meaning_of
from spark_sink.run import _final_if_permanent

NOT_IN_SPARK = {
    "connector.spanner.workers.failures.WorkerBugError",
    "connector.daemon.sink_process.SinkConfigurationError",
    "connector.daemon.sink_process.SinkProcessError",
    "connector.daemon.sink_process.SinkFailedPermanentlyError",
    "connector.daemon.sink_process.SinkDataLostError",
}
"""Errors of the daemon's own processes, in which Spark does not run."""

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):
  File "pyspark/sql/worker/utils.py", line 98, in worker_run
    main(infile, outfile)
  File "files.py", line 7, in read
    raise KeyError(row)
KeyError: 'a value of a row'
 SQLSTATE: 38000"""


def test_an_error_of_the_connector_is_printed_as_it_is() -> None:
    assert clear_line(SinkError("it is full", hint="Free space.")) == "it is full. Free space."
    wrapped = WORKER.replace("KeyError: 'a value of a row'", "spark_sink.errors.SinkError: it is full. Free space.")
    assert clear_line(RuntimeError(wrapped)) == "it is full. Free space."


def test_an_unexpected_error_of_a_task_is_printed_by_its_type_without_values() -> None:
    assert clear_line(RuntimeError(WORKER)) == (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read: KeyError; run it with --verbose to see where"
    )


def test_of_any_other_error_the_first_line_is_printed() -> None:
    assert clear_line(RuntimeError("\n first \n second")) == "first"
    assert clear_line(RuntimeError()) == "RuntimeError"


def kinds(of: type[SpannerCdcError]) -> Iterator[type[SpannerCdcError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_each_error_of_the_connector_is_found_in_a_traceback_that_spark_has_wrapped() -> None:
    for package in (connector, spark_sink):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds(SpannerCdcError)}
    own = {name: kind for name, kind in found.items() if name.startswith(("connector.", "spark_sink."))}
    assert "spark_sink.errors.TableError" in own
    for name in own.keys() - NOT_IN_SPARK:
        kind = own[name]
        try:
            raise kind(["it is full"]) if issubclass(kind, ConfigurationError) else kind("it is full")
        except SpannerCdcError:
            wrapped = RuntimeError(f"[STREAM_FAILED] Failed to plan: {traceback.format_exc()} SQLSTATE: 38000")
        assert is_own(wrapped), name
        assert clear_line(wrapped) == "it is full"


CALLED = "An error occurred while calling o46.start.\n: "


class GoneError(PySparkException):
    """Its text is in a JVM that has died."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def in_batch(kind: str) -> StreamingQueryException:
    return StreamingQueryException(f"[STREAM_FAILED] Reason: {WORKER.replace('KeyError', kind)}")


PERMANENT = [
    AnalysisException("[CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.UNCATEGORIZED] path=/checkpoint: Permission denied"),
    IllegalArgumentException("[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' is invalid"),
    in_batch("KeyError"),
    in_batch("AssertionError"),
    PySparkException(f"{CALLED}org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: /x"),
    PySparkException(f"{CALLED}java.io.IOException: mkdir of file:/proc/x failed\n\tat org.apache.Y(Z.java:1)"),
]
TRANSIENT_ERRORS = [
    PySparkException("org.apache.spark.SparkException: Python worker failed to connect back."),
    AnalysisException("[PYTHON_DATA_SOURCE_ERROR] Python worker exited unexpectedly (crashed)"),
    AnalysisException(WORKER.replace("KeyError", "OSError")),
    IllegalArgumentException("java.net.UnknownHostException: namenode"),
    in_batch("MemoryError"),
    StreamingQueryException("[STREAM_FAILED] Job aborted: Task 0 in stage 3 failed"),
    GoneError("gone"),
]


def deliver_and_raise(error: PySparkException) -> None:
    with _final_if_permanent() as has_delivered:
        has_delivered.set()
        raise error


@pytest.mark.parametrize("error", PERMANENT)
def test_a_permanent_error_of_spark_is_final_unless_the_sink_has_delivered(
    error: PySparkException,
) -> None:
    assert is_permanent(error)
    with pytest.raises(SinkError) as final, _final_if_permanent():
        raise error
    assert code_of(final.value) == FAILED_PERMANENTLY
    assert str(final.value) == clear_line(error)
    with pytest.raises(type(error)) as raised:
        deliver_and_raise(error)
    assert code_of(raised.value) == TRANSIENT


@pytest.mark.parametrize("error", TRANSIENT_ERRORS)
def test_a_transient_error_of_spark_is_retried(error: PySparkException) -> None:
    with pytest.raises(type(error)) as raised, _final_if_permanent():
        raise error
    assert code_of(raised.value) == TRANSIENT


def test_a_lock_that_another_process_holds_and_a_silent_service_are_retried() -> None:
    held = "consumer 'files' is in use by another query"
    wrapped = PySparkException(
        WORKER.replace("KeyError: 'a value of a row'", f"connector.errors.SpoolInUseError: {held}")
    )
    unreachable = PySparkException(f"{WORKER}\nconnector.errors.UnreachableError: Spanner does not answer")
    assert [code_of(error) for error in (unreachable, UnreachableError("x"))] == [TRANSIENT, TRANSIENT]
    for kind in (DestinationUnavailableError, StorageUnavailableError):
        silent = PySparkException(f"{WORKER}\n{kind.__module__}.{kind.__name__}: Cloud Storage answers 503")
        assert [code_of(error) for error in (silent, kind("x"))] == [TRANSIENT, TRANSIENT]
        assert kind("x").exit_code == 1  # of a command, which nobody restarts
        assert is_unanswered(silent)
    assert not is_unanswered(wrapped)
    assert [code_of(error) for error in (wrapped, SpoolInUseError(held))] == [TRANSIENT, TRANSIENT]
    assert clear_line(wrapped) == held


def test_an_exception_of_the_jvm_is_printed_without_the_call() -> None:
    line = clear_line(RuntimeError(f"{CALLED}java.io.IOException: mkdir of file:/proc/x failed\n\tat org.apache.Y"))
    assert line == "java.io.IOException: mkdir of file:/proc/x failed"


def test_a_sink_that_another_has_replaced_is_not_restarted() -> None:
    assert code_of(TakenOverError("another sink holds the spool")) == 1


PROXY = """An error occurred while calling o60.awaitTermination.
: org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query terminated with exception: An exception
 was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "merge_into.py", line 267, in _merge
pyspark.errors.exceptions.captured.IllegalArgumentException: Cannot parse path: /lake/Entries

JVM stacktrace:
java.lang.IllegalArgumentException
\tat org.apache.iceberg.Catalog
"""


def test_what_the_jvm_refuses_inside_a_micro_batch_is_said_in_its_own_words_and_permanent() -> None:
    error = StreamingQueryException(PROXY)
    assert clear_line(error) == "Cannot parse path: /lake/Entries"
    assert is_permanent(error)


def test_an_error_about_a_value_is_said_without_the_value() -> None:
    text = "[CAST_INVALID_INPUT] The value 'secret' of the type STRING cannot be cast to BIGINT. SQLSTATE: 22018"
    for error in (
        PySparkException(text),
        PySparkException(f"{CALLED}org.apache.spark.SparkNumberFormatException: {text}"),
        StreamingQueryException(PROXY.replace("Cannot parse path: /lake/Entries", text)),
    ):
        assert clear_line(error) == "a value cannot be written: CAST_INVALID_INPUT"
        assert is_permanent(error)
    in_brackets = text.replace("'secret'", "'[SECRET]'")
    assert clear_line(PySparkException(in_brackets)) == "a value cannot be written: CAST_INVALID_INPUT"


@pytest.mark.parametrize("kind", ["java.lang.NumberFormatException", "java.time.format.DateTimeParseException"])
def test_of_what_java_cannot_read_the_kind_alone_is_said(kind: str) -> None:
    text = f'{kind}: For input string: "secret"'
    for error in (PySparkException(text), PySparkException(f"{CALLED}{text}\n\tat java.base/java.lang.Long.parseLong")):
        assert clear_line(error) == f"a value of a row or an option is invalid: {kind.rpartition('.')[2]}"
        assert is_permanent(error)
    for quoted in ('For input string: "secret"', "Invalid UUID string: secret"):
        refused = StreamingQueryException(PROXY.replace("Cannot parse path: /lake/Entries", quoted))
        assert clear_line(refused) == "a value of a row or an option is invalid: StreamingQueryException"


def test_a_size_in_sparks_configuration_that_is_none_is_said_in_its_own_words() -> None:
    text = "java.lang.NumberFormatException: Size must be specified as bytes (b). Failed to parse byte string: 2x"
    assert clear_line(PySparkException(f"{CALLED}{text}")) == text


def test_a_permanent_error_of_a_sink_is_permanent_also_where_spark_has_wrapped_it() -> None:
    line = "spark_sink.errors.PermanentError: a value of table Singers cannot be written"
    assert code_of(PySparkException(WORKER.replace("KeyError: 'a value of a row'", line))) == FAILED_PERMANENTLY


JVM = "An error occurred while calling o49.sql.\n: {}\n\tat a.b.C.d(C.scala:1)"


@pytest.mark.parametrize(
    "error",
    [
        AnalysisException("[DELTA_MISSING_DELTA_TABLE] `/lake/Singers` is not a Delta table. SQLSTATE: 42P01"),
        IllegalArgumentException("Table column names conflict with names reserved for Iceberg metadata columns"),
        RuntimeError(JVM.format("org.apache.spark.sql.delta.DeltaTableFeatureException: [DELTA_UNSUPPORTED_...] x")),
        RuntimeError(JVM.format("java.lang.UnsupportedOperationException: Cannot write to a branch")),
    ],
)
def test_what_the_jvm_refuses_of_one_table_is_not_taken_for_an_error_of_all(error: Exception) -> None:
    assert is_of_statement(error)


@pytest.mark.parametrize(
    "error",
    [
        AnalysisException("[SCHEMA_NOT_FOUND] The schema `lake`.`music` cannot be found. SQLSTATE: 42704"),
        AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. SQLSTATE: 42K02"),
        RuntimeError(JVM.format("org.apache.hadoop.security.AccessControlException: Permission denied: user=a")),
        RuntimeError(JVM.format("java.lang.IllegalArgumentException: wrapped: java.nio.file.AccessDeniedException: x")),
        RuntimeError(JVM.format("org.apache.spark.SparkException: Job aborted due to stage failure")),
        RuntimeError(JVM.format("java.lang.OutOfMemoryError: Java heap space")),
        PySparkException(WORKER),
    ],
)
def test_an_error_that_every_table_would_have_stops_no_table_alone(error: Exception) -> None:
    assert not is_of_statement(error)


IN_FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "spark_sink/sinks/tables/merge_into.py", line 7, in _merge
    spark.sql(statement)
py4j.protocol.Py4JJavaError: An error occurred while calling o49.sql.
: {}
\tat a.b.C.d(C.scala:1)
"""


@pytest.mark.parametrize(
    ("java", "line", "permanent"),
    [
        ("java.lang.IllegalArgumentException: Invalid table: _file", "Invalid table: _file", True),
        (
            "org.apache.hadoop.security.AccessControlException: Permission denied: /lake",
            "Permission denied: /lake",
            True,
        ),
        ("java.lang.UnsupportedOperationException: Cannot write to a branch", "Cannot write to a branch", True),
        (
            "org.apache.spark.SparkException: Job aborted: a value of a row",
            f"{IN_FOREACH_BATCH.partition('Traceback')[0]}SparkException; run it with --verbose to see where",
            False,
        ),
    ],
)
def test_what_pyspark_has_no_exception_for_is_said_in_the_words_of_the_jvm(
    java: str, line: str, permanent: bool
) -> None:
    error = RuntimeError(IN_FOREACH_BATCH.format(java))
    assert (clear_line(error), is_permanent(error)) == (line, permanent)


OWN = "Traceback (most recent call last):\nconnector.errors.SpoolError: the spool is gone"


@pytest.mark.parametrize(
    ("error", "meaning", "again"),
    [
        (SpoolError("the spool is gone"), Meaning.OWN, False),
        (PySparkException(OWN), Meaning.OWN, False),
        (Py4JNetworkError("Answer from Java side is empty"), Meaning.JVM_GONE, False),
        (ConnectionRefusedError(111, "Connection refused"), Meaning.JVM_GONE, False),
        (Py4JError("[SPARK_JOB_CANCELLED] Job 1 cancelled"), Meaning.CANCELLED, True),
        (AnalysisException("there is no such column"), Meaning.PERMANENT, False),
        (Py4JError("An error occurred while calling o1.collect.\n: org.x.Lost: an executor was lost"),
         Meaning.TRANSIENT, True),
    ],
)  # fmt: skip
def test_an_error_of_a_job_has_one_meaning(error: Exception, meaning: Meaning, again: bool) -> None:
    assert meaning_of(error) is meaning
    assert meaning.is_worth_another_attempt is again


def test_a_jvm_that_has_died_is_said_alike_however_python_meets_it() -> None:
    found = {
        line_and_code(error) for error in (Py4JNetworkError("x"), ConnectionRefusedError(111, "Connection refused"))
    }
    ((line, code),) = found
    assert line.startswith("Spark's JVM has died")
    assert code == TRANSIENT


def test_no_other_file_lists_the_classes_of_sparks_errors() -> None:
    assert len(SPARK_ERRORS) == 2
    root = Path(__file__).parents[2] / "spark_sink"
    listing = re.compile(r"\((?:PySparkException, Py4J|Py4J\w+, PySparkException)|py4j\.protocol import")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if listing.search(path.read_text())}
    assert found == {"failures.py"}
