"""The registration of built-in sinks imports no library of them, and that of sources checks the workers' Python."""

import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock, PropertyMock

import pytest
from pyspark.errors import AnalysisException, PySparkException

import connector
import spark_sink
from connector.config.sinks import GROUP
from connector.errors import ConfigurationError
from spark_sink.built_in import SINKS
from spark_sink.registration import check_python

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "pyarrow.dataset", "grpc", "google.cloud.bigquery", "google.cloud.storage", "fastavro")


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", SINKS)
def test_a_configuration_is_read_without_the_libraries_of_the_sink(name: str) -> None:
    code = (
        "import sys\nfrom connector.config.sinks import sink_type\n"
        f"sink_type({name!r})\nprint([module for module in {HEAVY} if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.long(but=1)
@pytest.mark.parametrize("module", ["sources.changes.data_source", "sinks.files.source", "sinks.tables.source", "run"])
def test_a_process_of_spark_that_reads_a_spool_does_not_wait_for_spanners_client(module: str) -> None:
    clients = ("grpc", "google.cloud.spanner_v1", "google.cloud.bigquery")
    code = f"import sys\nimport spark_sink.{module}\nprint([name for name in {clients} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_built_in_sinks_are_the_registered_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][GROUP] == SINKS


def test_code_that_is_not_installed_finds_the_built_in_sinks() -> None:
    code = (
        "import importlib.metadata as m; m.entry_points = lambda **_: ()\n"
        "from connector.config.sinks import sink_names, sink_type\n"
        "print(sink_names(), sink_type('files').config_type.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "['files', 'bigquery', 'spanner', 'tables'] FilesConfig\n"


def test_importing_the_connector_imports_no_sink() -> None:
    code = "import sys\nimport connector.cli\nprint([name for name in sys.modules if name.startswith('spark_sink')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_of_the_connector_names_a_sink_but_the_default_one() -> None:
    (root,) = connector.__path__
    sources = {path: path.read_text().lower() for path in Path(root).rglob("*.py")}
    named = {path.name for path, text in sources.items() if "bigquery" in text}
    assert named == {"self_test.py", "extras.py"}, "whose options name a dataset, and the distribution's extras"
    assert [path.name for path, text in sources.items() if '= "files"' in text] == ["sinks.py"]


def test_a_session_that_lets_no_option_be_set_gets_the_sources_without_pushdown() -> None:
    """As that of a declarative pipeline."""
    session = session_without_context()
    session.conf.get.return_value = None
    session.conf.set.side_effect = PySparkException("SESSION_MUTATION_IN_DECLARATIVE_PIPELINE")
    check_registered_without_pushdown(session)


def test_a_session_that_does_not_offer_the_option_gets_the_sources_without_pushdown() -> None:
    """As that of Databricks serverless, where asking is an error, too."""
    session = session_without_context()
    unavailable = AnalysisException("[CONFIG_NOT_AVAILABLE] Configuration a.b is not available. SQLSTATE: 42K0I")
    session.conf.get.side_effect = session.conf.set.side_effect = unavailable
    check_registered_without_pushdown(session)


def test_a_session_that_cannot_be_asked_gets_no_source() -> None:
    session = session_without_context()
    session.conf.get.side_effect = AnalysisException("[INVALID_HANDLE.SESSION_CLOSED] The session was closed.")
    with pytest.raises(AnalysisException, match="SESSION_CLOSED"):
        spark_sink.register(session)


def session_without_context() -> Mock:
    """A session of Spark Connect."""
    session = Mock()
    type(session).sparkContext = PropertyMock(side_effect=PySparkException("Spark Connect"))
    return session


def check_registered_without_pushdown(session: Mock) -> None:
    spark_sink.register(session)
    sources = {call.args[0].name(): call.args[0] for call in session.dataSource.register.call_args_list}
    assert list(sources) == ["spanner-change-stream", "datastream-files", "spanner-snapshot"]
    assert not sources["spanner-snapshot"].pushes


def test_the_help_of_the_package_lists_its_functions() -> None:
    text = pydoc.plain(pydoc.render_doc(spark_sink))
    listed = text[text.index("FUNCTIONS") :]
    assert [name for name in spark_sink.__all__ if f"\n    {name}(" in listed] == spark_sink.__all__


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


WITHOUT_CLASSIC_SPARK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == ["pyspark", "core"]:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import spark_sink
print([getattr(spark_sink, name).__name__ for name in spark_sink.__all__])
"""


def test_what_a_session_of_connect_needs_is_imported_without_the_classic_part_of_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CLASSIC_SPARK], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['as_of', 'merge_into', 'register', 'typed']", done.stderr
