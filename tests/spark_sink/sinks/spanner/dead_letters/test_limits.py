"""Dead letters that are kept, because what the source has is not what the destination should have."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from connector.config.loading import load
from connector.core.records import Mod
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.manifest import Manifest, SegmentFile
from connector.spool.reading import Spool
from spark_sink.errors import SinkError
from spark_sink.sinks.spanner.changes import EventsByPlace
from spark_sink.sinks.spanner.replay import replay_into
from spark_sink.sinks.spanner.source import dead_letter_prefix
from tests.connector.spool.backfill.builders import recorded
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.changes import column
from tests.spark_sink.sinks.spanner.dead_letters.pair import CHILD, TABLES, Pair
from tests.spark_sink.spools import START, record


@pytest.fixture
def pair(database: MakeDatabase, tmp_path: Path) -> Pair:
    """A pair whose destination has no tables."""
    source, replica = database(), database()
    source.run_ddl(*TABLES["googlesql"])
    return Pair(source, replica, tmp_path)


def rejected_row(pair: Pair) -> pa.RecordBatch:
    """A row of an INSERT that became a dead letter, which could be replayed."""
    pair.commit("INSERT", 1, Name="a", Age=1)
    epoch = pair.seal()
    pair.apply()
    pair.alter(*TABLES["googlesql"])
    return EventsByPlace(pair.spool.spool, [pair.spool.spool.manifest(epoch)]).at(epoch, [0])


def test_rejected_events_are_taken_from_their_own_files_alone_however_large_the_epoch_is() -> None:
    read = []

    class Files:
        """A spool whose files have three events each."""

        def batches(self, file: SegmentFile) -> list[pa.RecordBatch]:
            read.append(file.path)
            first = int(file.path) * 3
            return [pa.record_batch({"at": pa.array(places)}) for places in ([first, first + 1], [first + 2])]

    files = [
        SegmentFile(
            path=str(number), rows=3, bytes=9, crc32c="", first_commit_timestamp=START, last_commit_timestamp=START
        )
        for number in range(1000)
    ]
    epoch = cast("Manifest", SimpleNamespace(epoch=7, files=files))
    events = EventsByPlace(cast("Spool", Files()), [epoch])
    assert events.at(7, [2, 4, 5, 2999]).column("at").to_pylist() == [2, 4, 5, 2999]
    assert events.at(7, [2998]).column("at").to_pylist() == [2998]
    assert read == ["0", "1", "999"]


def test_those_of_another_spool_stay(pair: Pair) -> None:
    row = rejected_row(pair)
    pair.replica.dead_letters.put("People", "abc_spanner.spanner_1_0", row, ["why"])
    assert pair.replay() == (1, 1, 0)
    (why,) = pair.replica.rejected()["People"]
    assert why == "it is of another spool: replay it with that spool (spool.path), or remove it"


@pytest.mark.long
def test_they_wait_while_a_backfill_is_later_than_the_last_epoch(pair: Pair) -> None:
    """Its rows may hold what the stream lacks, after a gap, say."""
    rejected_row(pair)
    spool = pair.spool.spool
    watermark = spool.manifest(spool.latest()).watermark_high
    recorded(spool, spool.header(), "People", at=watermark + 1000)
    assert pair.replay() == (0, 0, 1)
    pair.commit("UPDATE", 1, Name="b", Age=2)
    pair.seal()
    pair.apply()
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == [(1, "b", 2)]


def test_a_stream_that_skips_transactions_is_refused(pair: Pair) -> None:
    """The destination's own changes are skipped, and would be written over by older ones."""
    rejected_row(pair)
    config = load(pair.config())
    skipping = config.model_copy(
        update={"source": config.source.model_copy(update={"skip_transaction_tags": ["spanner-cdc"]})}
    )
    with pytest.raises(SinkError, match=r"cannot be replayed with source.skip_transaction_tags"), replay_into(skipping):
        pass


def test_a_replay_before_the_first_applied_change_says_so(pair: Pair) -> None:
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    consumers.register(pair.spool.spool, "spanner", now=1)
    with (
        pytest.raises(SpoolError, match="the sink has applied no changes yet"),
        replay_into(load(pair.config())),
    ):
        pass


def test_a_table_with_another_key_keeps_its_dead_letters_and_names_no_value(pair: Pair) -> None:
    rejected_row(pair)
    pair.source.run_ddl(
        "ALTER CHANGE STREAM Everything SET FOR Children",
        "DROP TABLE People",
        "CREATE TABLE People (Id INT64, Name STRING(MAX) NOT NULL, Age INT64) PRIMARY KEY (Name)",
    )
    with pair.source.database.batch() as batch:
        batch.insert("People", ["Id", "Name"], [[3, "x"]])
    columns = (column("Id", 1), column("Name", 2, kind="STRING", of_key=True), column("Age", 3))
    at = pair.spool.watermark + 1000
    mod = Mod('{"Name":"x"}', '{"Id":"3","Age":null}', "{}")
    pair.spool.seal(replace(record(at, table="People", columns=columns), mods=(mod,)))
    assert pair.replay() == (0, 1, 0)
    assert pair.replica.rejected()["People"] == ["table People was created again with another key: remove it"]


def test_a_table_that_the_source_did_not_have_keeps_its_dead_letters(pair: Pair) -> None:
    rejected_row(pair)
    pair.source.run_ddl("ALTER CHANGE STREAM Everything SET FOR Children", "DROP TABLE People")
    pair.commit("INSERT", 5, "Children", columns=CHILD, Parent=1)
    pair.seal()
    pair.apply()
    assert pair.replay() == (0, 1, 0)
    (why,) = pair.replica.rejected()["People"]
    assert why.startswith("the source had no table People as of ")
    assert why.endswith("replay it after a later one, or remove it if the table was dropped")


@pytest.mark.long
def test_a_replay_of_a_table_looks_at_no_other_files(pair: Pair) -> None:
    """Not when it sends rejected ones again, either."""
    rejected_row(pair)
    folder = Path(pair.replica.dead_letters.root, "Zebra")
    folder.mkdir()
    name = f"{dead_letter_prefix(pair.spool.spool, 'spanner', 1)}0"
    (folder / f"{name}.jsonl").write_text("not JSON")
    done = pair.command("--table", "People")
    assert done.code == 0, done.err
    assert done.out == b"1 dead letter accepted, 0 rejected again\n"
