"""Runs what the pages show in the environment of these tests, or in a clean one that has only what the pages install.

`make test-snippets` builds the wheels, installs them with the extra `spark` and nothing else into an environment of its
own, and names it in SPANNER_CDC_SNIPPETS.
"""

import os
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.without_pandas import with_hidden

_CLEAN = os.environ.get("SPANNER_CDC_SNIPPETS", "")
BIN = Path(_CLEAN).absolute() / "bin" if _CLEAN else Path(sys.executable).parent

_SPARK = Path(__file__).parent / "spark"
"""Spark's settings for small data: a shuffle has two partitions, where 200 are its default."""


def environment(**more: str) -> dict[str, str]:
    """Returns the variables for a program of the pages, without what only these tests have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    path = os.pathsep.join([str(BIN), kept.get("PATH", "")])
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"  # starts twice as fast
    clone = {} if _CLEAN else {"PYTHONPATH": with_hidden(str(ROOT))}
    return {**kept, "PATH": path, "JDK_JAVA_OPTIONS": java, "SPARK_CONF_DIR": str(_SPARK), **clone, **more}


def shown(page: str, language: str) -> list[str]:
    """Returns the blocks of a page in a language."""
    return [block.text for block in blocks(language) if block.place.startswith(f"{page}:")]
