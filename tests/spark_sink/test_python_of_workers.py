"""A job whose workers would run another Python, without spark_sink, is stopped by one line."""

import sys
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from spark_sink.registration import check_python


def python(folder: Path, says: str) -> str:
    """A Python in a folder of its own, that fails to import."""
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\necho "{says}" >&2\nexit 1\n')
    program.chmod(0o755)
    return str(program)


def test_a_python_without_spark_sink_is_named_with_what_to_set(tmp_path: Path) -> None:
    other = python(tmp_path, "ModuleNotFoundError: No module named 'spark_sink'")
    with pytest.raises(ConfigurationError) as raised:
        check_python(other)
    line = str(raised.value)
    assert line.startswith(f"PYSPARK_PYTHON: Spark starts {other} for its workers, which has no module spark_sink")
    assert f"set PYSPARK_PYTHON={sys.executable}" in line


def test_this_python_and_one_that_fails_otherwise_are_left_to_spark(tmp_path: Path) -> None:
    check_python(sys.executable)
    check_python("no-such-python")
    check_python(python(tmp_path, "something else"))
