"""Dead letters of a stopped table that has later epochs: a replay never counts them as written."""

from pathlib import Path

import pytest

from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.stopped.scene import Scene

WHY = (
    "later changes of table Singers are written already, and this one must not follow them: remove it, and then run"
    " `spanner-cdc backfill --table Singers`"
)


def test_they_stay_with_a_reason_while_later_ones_are_written(scene: Scene) -> None:
    scene.overtake()
    scene.restart()
    scene.deliver(5, 6)
    assert scene.to.epochs() == [1, 4], "it is stopped again"
    assert scene.replay() == Replayed(sent=1, rejected=2)
    assert scene.replay() == Replayed(rejected=2)
    assert scene.to.epochs() == [1, 4, 5]
    assert [(file.table, dict(file.reasons)) for file in scene.store.files()] == [("Singers", {WHY: 1})] * 2
    assert list(scene.stopped) == ["Singers"]


def test_a_replay_that_is_killed_after_a_commit_knows_it(scene: Scene) -> None:
    scene.to.failing = {"Singers"}
    scene.deliver(1, 3)
    scene.deliver(4, 6)
    scene.to.failing.clear()
    for _ in range(2):
        with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
            scene.replay()
    assert scene.replay() == Replayed(sent=5)
    assert scene.to.epochs() == [1, 2, 3, 4, 5]
    assert scene.stopped == {}


def test_a_table_that_stops_after_its_own_commit_has_the_epochs_of_its_dead_letters(scene: Scene) -> None:
    scene.to.fails_after_commit = {"Singers"}
    scene.deliver(4, 6)
    assert scene.to.applied["Singers"] == 6, "more than its last event's epoch"
    assert scene.letters() == 2
    scene.to.fails_after_commit.clear()
    assert scene.replay() == Replayed(sent=2)
    assert scene.to.epochs() == [4, 5]
    assert scene.stopped == {}


def test_a_file_that_was_renamed_is_replayed_by_its_epochs(scene: Scene) -> None:
    scene.to.failing = {"Singers"}
    scene.deliver(1, 2)
    scene.deliver(3, 4)
    scene.to.failing.clear()
    first, second = (Path(scene.store.root, file.path) for file in scene.store.files())
    first.rename(first.with_name(f"{first.stem} (copy).jsonl"))
    assert scene.replay() == Replayed(sent=4)
    assert scene.to.epochs() == [1, 2, 3, 4]
    assert not second.exists()
