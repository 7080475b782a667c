"""What an error of Spark or of its JVM means is decided in one place."""

import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from connector.errors import TRANSIENT, SpoolError
from spark_sink.failures import SPARK_ERRORS, Meaning, line_and_code, meaning_of

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
