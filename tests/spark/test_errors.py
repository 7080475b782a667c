"""The one line that a failure of Spark comes down to."""

from spark_sink.errors import SinkError, clear_line

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
