"""A stopped table that continues without its dead letters is incomplete until a backfill has read it."""

import pytest

from connector.spool import consumers
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from tests.connector.spool.backfill.builders import planned, recorded, segment
from tests.spark_sink.sinks.tables.stopped.scene import Scene, events
from tests.spark_sink.spools import START

WHY = {"Singers": "it was stopped, and continues without its dead letters of then"}
KEPT = "deleted rows that were kept for a backfill or for dead letters are not removed yet"


def backfill(scene: Scene, at: int) -> None:
    """A backfill of Singers as of a timestamp, which the sink has got."""
    document = recorded(scene.spool, scene.spool.header(), "Singers", at=at)
    own = spool_of(scene.spool, document.number)
    finish(own)


def finish(own: Spool) -> None:
    """A backfill is done, and the sink has got it."""
    progress = TableProgress(table="Singers", state="done")
    write_progress(own, BackfillProgress(updated=START, tables=(progress,)))
    consumers.record(own, "tables", 1, now=START)


def deliver(scene: Scene, own: Spool, epoch: int) -> None:
    """A process delivers an epoch of a backfill."""
    assert isinstance(scene.config.sink, TablesConfig)
    TablesDelivery(scene.config, scene.config.sink, Feed.at(own.path)).run(events(own, epoch, epoch))


def test_until_a_backfill_has_read_it(appending: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    appending.deliver(1)
    appending.to.failing = {"Singers"}
    appending.deliver(2)
    appending.to.failing.clear()
    appending.letters_removed()
    assert appending.incomplete(2)["Singers"].startswith("it is stopped")
    appending.deliver(3)
    assert "It lacks their changes until `spanner-cdc backfill --table Singers` brings" in capsys.readouterr().err
    assert appending.stopped == {}
    appending.deliver(4)
    appending.restart()
    assert appending.incomplete(3) == appending.incomplete(4) == WHY
    at = [0, *(appending.spool.manifest(epoch).watermark_high for epoch in range(1, 6))]
    backfill(appending, at[2])
    assert appending.incomplete(4) == WHY, "it has not read all that the dead letters had"
    backfill(appending, at[4])
    assert appending.incomplete(3).keys() == {"Singers"}
    assert appending.incomplete(4) == {}
    assert appending.to.epochs() == [1, 3, 4]


def test_a_start_without_events_changes_nothing_of_it(scene: Scene) -> None:
    scene.to.failing = {"Singers"}
    scene.deliver(1)
    scene.to.failing.clear()
    scene.letters_away()
    assert scene.delivery.unsettled() == frozenset()
    scene.letters_back()
    scene.deliver(2)
    assert scene.replay() == Replayed(sent=2)
    assert scene.incomplete(2) == {}
    assert scene.to.epochs() == [1, 2]


def test_while_dead_letters_are_not_found_every_table_may_lack_some(scene: Scene) -> None:
    scene.to.failing = {"Singers"}
    scene.deliver(1, 3)
    assert scene.incomplete(3).keys() == {"Singers"}
    scene.to.failing.clear()
    scene.letters_away()
    scene.deliver(4)
    why = "dead letters of its sink are not found (3): they may be of it"
    assert scene.incomplete(4) == {"Albums": why, "Singers": why}
    scene.letters_back()
    assert scene.incomplete(4) == {"Albums": KEPT, "Singers": "it has dead letters"}


def test_also_while_its_dead_letters_are_back(scene: Scene) -> None:
    scene.overtake()
    assert scene.incomplete(4) == {"Albums": KEPT, "Singers": "it has dead letters"}
    assert scene.replay() == Replayed(rejected=2)
    assert scene.incomplete(4) == {"Singers": "it has dead letters"}
    scene.letters_removed()
    scene.delivery.settle(scene.lake, frozenset())  # as a start does
    assert scene.incomplete(4) == WHY


def test_a_table_that_continues_so_in_a_backfill_needs_another_one(appending: Scene) -> None:
    at = appending.spool.manifest(3).watermark_high
    document = recorded(appending.spool, appending.spool.header(), "Singers", at=at)
    planned(appending.spool, document, {"Singers": 2})
    own = spool_of(appending.spool, document.number)
    writer = BackfillWriter(own, own.header(), document)
    for partition in (0, 1):
        part = BackfillPart(table="Singers", plan=1, partition=partition)
        writer.seal(part, [segment(own, "Singers", [partition], epoch=partition + 1)], now=at)
    appending.to.failing = {"Singers"}
    deliver(appending, own, 1)
    appending.to.failing.clear()
    appending.letters_removed()
    deliver(appending, own, 2)
    appending.deliver(1, 4)
    finish(own)
    assert appending.incomplete(4) == WHY
    backfill(appending, at + 1)
    assert appending.incomplete(4) == {}
