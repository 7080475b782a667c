"""Delta's change data feed is possible beside the sink's own columns; an older table keeps the names that it has."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import spark_sink
from spark_sink.sinks.tables import lake_table
from spark_sink.sinks.tables.config import Format, Mode
from spark_sink.sinks.tables.formats.session import session_options
from spark_sink.sinks.tables.lake_table import FORMER
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.rejected.rejected_rows import EVENT_COLUMNS
from tests.spark_sink.sinks.tables.histories import History
from tests.spark_sink.sinks.tables.reading import target
from tests.spark_sink.spools import SpoolMaker

Change = tuple[str, int, str]
"""The feed's word for a change, the key, and the event's change sequence number."""

_FEED = "delta.enableChangeDataFeed"
_NEEDS_DELTA = pytest.mark.skipif(
    spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse"
)


class Lake:
    """A spool of random changes, and tables that have them."""

    def __init__(self, lake: SparkSession, of_format: Format, mode: Mode, folder: Path) -> None:
        self._lake = lake
        self._format: Format = of_format
        self._mode: Mode = mode
        self._folder = folder
        self.spool = SpoolMaker(folder / "spool")
        self._history = History(self.spool, random.Random(5), "NEW_VALUES", keys=8)

    def write(self, place: str, last: int, properties: Mapping[str, str] | None = None) -> None:
        """Brings epochs up to one into the tables of a place."""
        spark_sink.merge_into(
            self.events(1, last),
            spool=self.spool.path,
            path=self._folder / place,
            format=self._format,
            mode=self._mode,
            table_properties=properties,
        )

    def commit(self) -> int:
        """Seals an epoch."""
        return self._history.commit(12)

    def events(self, first: int, last: int) -> DataFrame:
        """The events of some epochs, without Spark's source."""
        files = [file for epoch in range(first, last + 1) for file in self.spool.spool.manifest(epoch).files]
        batches = [batch.select(EVENT_COLUMNS) for file in files for batch in self.spool.spool.batches(file)]
        return self._lake.createDataFrame(pa.Table.from_batches(batches))

    def table(self, place: str) -> str:
        """The table of a place, in a statement."""
        return target(self._folder / place, self._format)

    def changes(self, epoch: int, there: set[int]) -> set[Change]:
        """The changes of the table by the events of an epoch, as the feed names them.

        Args:
            epoch: its number.
            there: the keys of the rows before it; they are updated.
        """
        events = self.events(epoch, epoch).selectExpr(
            "CAST(get_json_object(payload, '$.Id') AS INT)", "change_sequence_number", "source_metadata.mod_type"
        )
        last = {row[0]: row for row in sorted(events.collect(), key=lambda row: str(row[1]))}
        deleted = {key for key, row in last.items() if row[2] == "DELETE"}
        made = {
            ("update_postimage" if key in there else "insert", key, str(last[key][1])) for key in last.keys() - deleted
        }
        made |= {("delete", key, "") for key in deleted & there}
        there.update(last)
        there -= deleted
        return made

    def feed(self, place: str, version: int = 0) -> DataFrame:
        """Delta's change data feed from a version on."""
        reader = self._lake.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        return reader.load(str(self._folder / place / "Singers"))

    def rows(self, place: str) -> DataFrame:
        """The rows of a place."""
        if self._format == "parquet":
            return self._lake.read.parquet(str(self._folder / place / "Singers"))
        self._lake.sql(f"REFRESH TABLE {self.table(place)}")
        return self._lake.table(self.table(place))


@contextmanager
def older_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has tables created with the former names."""
    with monkeypatch.context() as patched:
        patched.setattr(lake_table, "own_names", lambda _: dict(FORMER))
        yield


def as_rows(rows: DataFrame) -> Counter[str]:
    """Rows in any order, by the present names of the columns."""
    renamed = rows.withColumnsRenamed({former: name for name, former in FORMER.items()})
    return Counter(map(repr, renamed.select(*sorted(renamed.columns)).collect()))


def carried_on(made: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made.commit()
    with older_version(monkeypatch):
        made.write("old", first)
    there = made.rows("old").columns
    assert set(FORMER.values()) & set(there)
    made.write("old", made.commit())
    made.write("new", 2)
    assert made.rows("old").columns == there
    assert not set(FORMER.values()) & set(made.rows("new").columns)
    assert as_rows(made.rows("old")) == as_rows(made.rows("new"))


@pytest.mark.parametrize(
    "mode", ["merge", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("append", "history"))]
)
def test_a_table_of_an_older_version_is_carried_on_under_its_names(
    lake: SparkSession, merging_format: Format, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_on(Lake(lake, merging_format, mode, tmp_path), monkeypatch)


@pytest.mark.long
def test_parquet_files_of_an_older_version_are_carried_on_under_their_names(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_on(Lake(lake, "parquet", "append", tmp_path), monkeypatch)


@pytest.mark.long
@_NEEDS_DELTA
def test_deltas_change_data_feed_has_what_the_events_changed(lake: SparkSession, tmp_path: Path) -> None:
    """Each version's changes, one after the other, make the table, and each names the last event of its row."""
    made = Lake(lake, "delta", "merge", tmp_path)
    for _ in range(3):
        made.write("lake", made.commit(), {_FEED: "true"})
    rows, expected, there = dict[int, str](), dict[int, set[Change]](), set[int]()
    for epoch in range(1, 4):
        expected[epoch] = made.changes(epoch, there)
        found = made.feed("lake").where(f"_commit_version = {epoch}").collect()
        for row in found:
            if row["_change_type"] in ("delete", "update_preimage"):
                assert rows.pop(row["Id"]) == values_of(row)
        rows |= {row["Id"]: values_of(row) for row in found if row["_change_type"] in ("insert", "update_postimage")}
        assert {change_of(row) for row in found if row["_change_type"] != "update_preimage"} == expected[epoch]
    assert {kind for changes in expected.values() for kind, _, _ in changes} == {"insert", "update_postimage", "delete"}
    assert rows == {row["Id"]: values_of(row) for row in made.rows("lake").collect()}


@pytest.mark.long
@_NEEDS_DELTA
def test_deltas_change_data_feed_can_be_a_default_of_the_session(lake: SparkSession, tmp_path: Path) -> None:
    made = Lake(lake, "delta", "append", tmp_path)
    with session_options(lake, {f"spark.databricks.delta.properties.defaults.{_FEED.removeprefix('delta.')}": "true"}):
        made.write("lake", made.commit())
    made.write("lake", made.commit())
    feed = made.feed("lake").select("_commit_version", "_change_type", "_uuid", "_mod_type").collect()
    events = made.events(1, 2).select("epoch", "uuid", "source_metadata.mod_type").collect()
    assert sorted(map(tuple, feed)) == sorted((row[0], "insert", row[1], row[2]) for row in events)


def values_of(row: Row) -> str:
    """The values of a row."""
    return repr([row[name] for name in ("Name", "Balance", "Tags", "_change_sequence_number")])


def change_of(row: Row) -> Change:
    """A change of the feed, without the number of a deleted row, which is that of the event before."""
    kind: str = row["_change_type"]
    return kind, row["Id"], "" if kind == "delete" else row["_change_sequence_number"]
