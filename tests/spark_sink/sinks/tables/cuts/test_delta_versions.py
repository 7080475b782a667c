"""Versions of Delta tables of a catalog, whose folders are looked up."""

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.cuts.delta_versions import DeltaVersions
from spark_sink.sinks.tables.formats import delta
from spark_sink.sinks.tables.formats.delta import DeltaStore
from tests.spark_sink.sinks.tables.catalogs.hive import SILENT


class Catalog:
    """A session in which one table has a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.asked = 0
        self.error = ""

    def sql(self, _: str) -> SimpleNamespace:
        self.asked += 1
        if self.error:
            raise AnalysisException(self.error)
        return SimpleNamespace(first=lambda: {"location": self.folder})


class Folders(DeltaStore):
    """A store of folders, each with the newest version of the table in it."""

    def __init__(self, catalog: Catalog, versions: dict[str, int]) -> None:
        super().__init__(cast("SparkSession", catalog), TableOptions("delta", None, "lake", "merge", "apply"), "x")
        self.versions = versions

    def snapshot(self, folder: str) -> SimpleNamespace:
        return SimpleNamespace(version=lambda: self.versions.get(folder, -1))


@pytest.fixture(autouse=True)
def no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_FOLDERS", {})


def versions_of(store: Folders) -> list[int]:
    return list(DeltaVersions(cast("SparkSession", None), store).now(["Singers"]).values())


def test_a_folder_is_looked_up_once() -> None:
    catalog = Catalog("/a")
    store = Folders(catalog, {"/a": 7})
    assert versions_of(store) == versions_of(store) == [7]
    assert catalog.asked == 1


@pytest.mark.parametrize("is_left", [True, False])
def test_a_table_that_was_created_again_in_another_folder_has_the_version_there(*, is_left: bool) -> None:
    catalog = Catalog("/a")
    store = Folders(catalog, {"/a": 7})
    assert versions_of(store) == [7]
    catalog.folder = "/b"
    store.versions = {"/a": 7, "/b": 2} if is_left else {"/b": 2}
    if is_left:
        store.folder("Singers")  # as each micro-batch that writes the table asks for it
    assert versions_of(store) == [2]


def test_a_table_without_a_version_has_none() -> None:
    assert versions_of(Folders(Catalog("/a"), {})) == []


def test_a_table_is_published_as_one_that_is_not_there_only_if_the_catalog_says_so() -> None:
    catalog = Catalog("/a")
    store = Folders(catalog, {"/a": 7})
    catalog.error = "[DELTA_TABLE_NOT_FOUND] Delta table `lake`.`Singers` doesn't exist. SQLSTATE: 42P01"
    assert versions_of(store) == []
    catalog.error = SILENT
    with pytest.raises(AnalysisException, match="SessionHiveMetaStoreClient"):
        versions_of(store)
