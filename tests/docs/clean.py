"""Runs what the pages show in the environment of these tests, or in a clean one that has only what the pages install.

`make test-snippets` builds the wheels, installs them with the extra `spark` and nothing else into an environment of its
own, and names it in SPANNER_CDC_SNIPPETS. Its PySpark is the tests' one: Spark's jars are taken from there, because an
archive of their classes is of one place.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.java import java_options, spark_home
from tests.without_pandas import with_hidden

_CLEAN = os.environ.get("SPANNER_CDC_SNIPPETS", "")
BIN = Path(_CLEAN).absolute() / "bin" if _CLEAN else Path(sys.executable).parent

_SPARK = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
"""Spark's settings for small data: a shuffle has two partitions, where 200 are its default."""


def environment(**more: str) -> dict[str, str]:
    """Returns the variables for a program of the pages, without what only these tests have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    path = os.pathsep.join([str(BIN), kept.get("PATH", "")])
    home = {"SPARK_HOME": spark_home()} if _has_tests_spark() else {}
    clone = {} if _CLEAN else {"PYTHONPATH": with_hidden(str(ROOT))}
    java = {"JDK_JAVA_OPTIONS": java_options(), "PYSPARK_SUBMIT_ARGS": _SPARK, **home}
    return {**kept, "PATH": path, **java, **clone, **more}


def _has_tests_spark() -> bool:
    """True if Spark is of the version that these tests have."""
    return any(BIN.parent.glob(f"lib/python*/site-packages/pyspark-{version('pyspark')}.dist-info"))


def shown(page: str, language: str) -> list[str]:
    """Returns the blocks of a page in a language."""
    return [block.text for block in blocks(language) if block.place.startswith(f"{page}:")]
