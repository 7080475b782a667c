"""Tables of mode history have the versions that all events have, computed at once, whatever came when."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats.iceberg import catalog_options
from spark_sink.sinks.tables.formats.session import session_options
from tests.spark_sink.sinks.tables.campaign.backfill_ends import ENDS, HUNDREDS_OF_ROWS
from tests.spark_sink.sinks.tables.histories import COLUMNS
from tests.spark_sink.sinks.tables.history.campaign import HistoryCampaign, differences, stored_versions
from tests.spark_sink.sinks.tables.history.source import NAMES
from tests.spark_sink.sinks.tables.history.versions import Event, versions_of
from tests.spark_sink.sinks.tables.reading import commits, epochs, target
from tests.spark_sink.spools import START, SpoolMaker, record

SEEDS = {"delta": 0, "iceberg": 1}
WHOLE: dict[str, object] = {"Name": "n", "Balance": "1.25", "Tags": ["a"]}


class Sealed:
    """A spool of changes that name only what they change, and the same as events."""

    def __init__(self, folder: Path) -> None:
        self.spool = SpoolMaker(folder)
        self.events: list[Event] = []

    def seal(self, *changes: tuple[int, str, int, dict[str, object]]) -> int:
        """Seals an epoch of changes: nanoseconds after the start, and for each key."""
        records: list[DataChangeRecord] = []
        for at, kind, key, values in changes:
            self.events.append(Event(key, START + at, kind, values))
            made = record(START + at, [key], columns=COLUMNS, values=values, mod_type=kind)
            records.append(replace(made, value_capture_type="NEW_VALUES"))
        return self.spool.seal(*records)


@pytest.mark.long
def test_tables_have_the_versions_of_all_events_whatever_is_killed_or_late(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """The short form of the campaign: one seed has whole rows, the other only what changes name."""
    with session_options(lake, HUNDREDS_OF_ROWS):
        run = HistoryCampaign(lake, merging_format, ENDS[0], tmp_path, SEEDS[merging_format])
        run.epochs = 2
        assert run.run() == ""
        assert run.kills > 0


def test_readers_find_the_rows_as_of_any_time_and_a_commit_has_whole_epochs(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """Also versions of less than a microsecond are there; a later backfill adds what was not known."""
    stream = Sealed(tmp_path / "spool")
    stream.seal((1_000, "INSERT", 1, WHOLE), (1_000, "INSERT", 2, WHOLE), (1_300, "UPDATE", 1, {"Name": "b"}))
    stream.seal((SECOND, "DELETE", 1, {}), (SECOND, "UPDATE", 3, {"Name": "c"}), (3 * SECOND, "INSERT", 1, WHOLE))
    backfill = Sealed(tmp_path / "backfill")
    backfill.seal((2 * SECOND, "INSERT", 2, WHOLE), (2 * SECOND, "INSERT", 3, {**WHOLE, "Name": "c"}))
    path, table = tmp_path / "lake", target(tmp_path / "lake", merging_format)
    for spool, last in ((stream, 1), (stream, 2), (backfill, 1), (stream, 2)):
        spark_sink.merge_into(
            epochs(lake, spool.spool, 1, last), path=path, format=merging_format, mode="history", deletes="apply"
        )
    assert differences(stored_versions(lake, table), versions_of(stream.events + backfill.events, NAMES)) == ""
    assert commits(lake, table, merging_format) == 3

    def names(when: str) -> dict[int, str]:
        as_of = f"_valid_from <= {when} AND (_valid_to > {when} OR _valid_to IS NULL)"
        return {row["Id"]: row["Name"] for row in lake.table(table).where(as_of).collect()}

    assert names("TIMESTAMP '2026-03-01T10:00:00.000001Z'") == {1: "b", 2: "n"}
    assert names("TIMESTAMP '2026-03-01T10:00:01Z'") == {2: "n", 3: "c"}
    assert names("TIMESTAMP '2026-03-01T10:00:03Z'") == {1: "n", 2: "n", 3: "c"}
    current = lake.table(table).where("_is_current").collect()
    assert {row["Id"]: row["_captured"] for row in current} == {1: None, 2: None, 3: None}


@pytest.mark.slow
def test_commits_to_the_same_keys_at_the_same_time_make_one_history(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """As a backfill's beside the stream's are: whichever comes second reads what the first one has written."""
    streams = [Sealed(tmp_path / name) for name in ("one", "other")]
    for number, column in enumerate(("Name", "Balance")):
        for epoch in range(2):
            at = (1 + 2 * epoch + number) * SECOND
            changed: dict[str, object] = {column: f"{epoch}.25"}
            streams[number].seal(*((at, "UPDATE", key, changed) for key in range(4)))

    def merge(number: int) -> None:
        session = lake.newSession()
        spark_sink.register(session)
        for epoch in range(1, 3):
            events = epochs(session, streams[number].spool, epoch, epoch)
            spark_sink.merge_into(
                events, path=tmp_path / "lake", format=merging_format, mode="history", consumer=f"c{number}"
            )

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(merge, range(2)))
    for name, value in catalog_options(str(tmp_path / "lake")).items() if merging_format == "iceberg" else ():
        lake.conf.set(name, value)
    found = stored_versions(lake, target(tmp_path / "lake", merging_format))
    assert differences(found, versions_of(streams[0].events + streams[1].events, NAMES)) == ""


@pytest.mark.long
def test_a_table_of_another_mode_is_stopped_with_one_line(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    stream = Sealed(tmp_path / "spool")
    stream.seal((SECOND, "INSERT", 1, WHOLE))
    events = epochs(lake, stream.spool, 1, 1)
    for first, then in (("merge", "history"), ("history", "append")):
        path = tmp_path / first
        spark_sink.merge_into(events, path=path, format=merging_format, mode=first)  # type: ignore[arg-type]
        with pytest.raises(SinkError, match=f"as .*mode.* writes them, and the mode is {then}"):
            spark_sink.merge_into(events, path=path, format=merging_format, mode=then)  # type: ignore[arg-type]
