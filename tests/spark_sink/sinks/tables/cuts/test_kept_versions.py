"""Versions that published cuts name are kept from expiry for as long as ``cuts.keep`` says, and no longer."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339, parse
from spark_sink.errors import CutError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.cuts import cut_records
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.lake_table import CUTS
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import START, SpoolMaker, record

pytestmark = pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse"
)
KEEP = 60 * MINUTE


class Published:
    """A table, and the cuts of it at times that a test chooses."""

    def __init__(self, lake: SparkSession, folder: Path) -> None:
        of_format: Format = "iceberg"
        self._lake = lake
        self._maker = SpoolMaker(folder / "spool")
        options = TableOptions(of_format, str(folder / "lake"), None, "merge", "apply")
        self._writer = TablesWriter(Feed.at(self._maker.path), options, "tables")
        self.table = target(folder / "lake", of_format)
        self.now = time.time_ns()
        self._store = CutRecords(lake, options, "spool", "tables", KEEP, now=lambda: self.now)

    def change(self) -> None:
        """Makes another version of the table."""
        epoch = self._maker.seal(record(self._maker.watermark + SECOND, range(3), values={"Name": str(self.now)}))
        self._writer.write(epochs(self._lake, self._maker, epoch, epoch))

    def cuts(self) -> Sequence[PublishedCut]:
        """The cuts whose rows are there."""
        return self._store.cuts()

    def publish(self, epoch: int, minutes: float, *, late: int = 0) -> set[int]:
        """Publishes a cut so many minutes after the last; returns the epochs of the tags that the table has then."""
        self.now += int(minutes * MINUTE)
        version = self._store.versions(["Singers"])["Singers"]
        at = START + epoch * SECOND
        tables = {"Singers": TableAtCut(version=version)}
        self._store.publish(
            PublishedCut(timestamp=at, epoch=epoch, spool_id="spool", published_at=self.now - late, tables=tables)
        )
        self._lake.sql(f"REFRESH TABLE {self.table}")
        tags = self._lake.sql(f"SELECT name FROM {self.table}.refs WHERE type = 'TAG'").collect()
        return {int(row["name"].split("_")[3]) for row in tags}


@pytest.mark.long
def test_a_snapshot_has_a_tag_until_it_is_older_than_cuts_are_kept(lake: SparkSession, tmp_path: Path) -> None:
    published = Published(lake, tmp_path)
    published.change()
    assert published.publish(1, 0) == {1}
    published.change()
    assert published.publish(2, 0.5) == {1}, "one cut of each minute has tags"
    assert published.publish(3, 1) == {1, 3}
    assert published.publish(4, 10) == {1, 3}, "the table has not changed, and is kept for long enough"
    assert published.publish(5, 10) == {1, 3, 5}, "the tag would end before the cut does"
    assert published.publish(6, 58) == {5, 6}, "those that have ended are removed"


@pytest.mark.long
def test_who_asks_for_a_cut_that_is_expired_gets_the_timestamp_of_the_newest_earlier_one_that_is_kept(
    lake: SparkSession, tmp_path: Path
) -> None:
    published = Published(lake, tmp_path)
    for epoch in (1, 2, 3):
        published.change()
        assert published.publish(epoch, 0.1) == {1}
    catalog, _, name = published.table.partition(".")
    old = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.sql(f"CALL {catalog}.system.expire_snapshots(table => '{name}', {old})")
    first, second = (format_rfc3339(START + epoch * SECOND) for epoch in (1, 2))
    with pytest.raises(CutError, match="is vacuumed or expired") as caught:
        spark_sink.as_of(lake, path=tmp_path / "lake", format="iceberg", timestamp=second)
    _, _, named = caught.value.hint.partition("The newest earlier cut that is kept is of ")
    found = spark_sink.as_of(lake, path=tmp_path / "lake", format="iceberg", timestamp=named.partition(". ")[0])
    assert (format_rfc3339(parse(found.timestamp)), found["Singers"].count()) == (first, 3)


@pytest.mark.long
def test_a_snapshot_from_a_clock_that_is_ahead_has_a_tag(lake: SparkSession, tmp_path: Path) -> None:
    published = Published(lake, tmp_path)
    published.change()
    assert published.publish(1, -120) == {1}


def test_the_newest_cut_is_never_removed(lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication took longer than cuts are kept, or the clock was set meanwhile."""
    monkeypatch.setattr(cut_records, "_PUBLICATIONS", 2)
    published = Published(lake, tmp_path)
    published.change()
    published.publish(1, 0)
    published.publish(2, 180, late=2 * KEEP)
    assert [cut.epoch for cut in published.cuts()] == [2]


@pytest.mark.long
def test_cuts_are_published_where_no_file_of_their_table_is_to_be_removed(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Nessie's default."""
    monkeypatch.setattr(cut_records, "_PUBLICATIONS", 2)
    published = Published(lake, tmp_path)
    published.change()
    published.publish(1, 0)
    cuts = target(tmp_path / "lake", "iceberg", CUTS)
    lake.sql(f"ALTER TABLE {cuts} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    published.publish(2, 1)
    lake.sql(f"REFRESH TABLE {cuts}")
    assert lake.table(cuts).count() == 2
