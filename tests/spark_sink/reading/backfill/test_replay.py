"""Dead letters of a backfill are replayed once its sink will not repeat them."""

from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest

from connector.config.loading import Config, validated
from connector.errors import SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.records import spool_of
from connector.spool.consumers import replay_lock, sink_lock
from connector.spool.reading import Spool
from spark_sink.dead_letters_command import replayed
from spark_sink.run import Events, SinkEvent, awaited_lock
from spark_sink.sinks.files.replay import replay_into
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.connector.spool.backfill.builders import SOURCE, T, recorded, rows, spool_with_start
from tests.spark_sink.reading.backfill.state import events


def config_of(folder: Path) -> Config:
    return validated(
        {
            "source": SOURCE.model_dump() | {"instance": "in"},
            "spool": {"path": str(folder / "spool")},
            "sink": {"path": str(folder / "out"), "dead_letters": str(folder / "dead")},
        }
    )


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """The spool of a backfill with a dead letter of its first epoch."""
    spool, header = spool_with_start(tmp_path / "spool")
    own = spool_of(spool, recorded(spool, header, "New").number)
    name = f"{own.header().spool_id}_files_1_0"
    DeadLetters(str(tmp_path / "dead/files")).put("New", name, rows("New", [5], epoch=1), ["too large"])
    monkeypatch.setattr(Spool, "check_source", lambda spool, *_: spool.header())
    return own


def replay(folder: Path) -> tuple[int, int]:
    """Replays all dead letters; returns how many were sent, and how many wait."""
    store = DeadLetters(str(folder / "dead/files"))
    with replay_into(config_of(folder), store) as into:
        done = replayed(store, store.files(), into, [])
    return done.sent, done.waiting


def test_they_wait_until_their_micro_batch_is_done(own: Spool, tmp_path: Path) -> None:
    assert replay(tmp_path) == (0, 1)
    consumers.record(own, "files", 1, now=T)
    assert replay(tmp_path) == (1, 0)
    (event,) = events(tmp_path / "out")
    assert (event["payload"], event["read_method"]) == ({"Id": 5, "Name": "New5"}, "spanner-backfill")
    assert event["sort_keys"][1] == T


def test_they_do_not_wait_for_a_backfill_that_another_one_continues(own: Spool, tmp_path: Path) -> None:
    assert replay(tmp_path) == (0, 1)
    spool = Spool.at(tmp_path / "spool")
    recorded(spool, spool.header(), "New", at=T + 10_000, continues=1)
    assert replay(tmp_path) == (1, 0)


def test_they_are_not_replayed_while_the_backfill_is_delivered(own: Spool, tmp_path: Path) -> None:
    with (
        own.storage.locked(sink_lock("files"), "taken"),
        pytest.raises(SpoolInUseError, match="dead letters cannot be replayed while the sink runs"),
    ):
        replay(tmp_path)


def test_a_repair_that_is_recorded_while_a_replay_runs_is_delivered_after_it(
    own: Spool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = Spool.at(tmp_path / "spool")
    events: Events = SimpleQueue()
    held = ExitStack()
    store = DeadLetters(str(tmp_path / "dead/files"))
    with replay_into(config_of(tmp_path), store):
        recorded(spool, spool.header(), "New", at=T + 10_000)
        events.put(SinkEvent.SIGNAL)  # as if it was stopped while it waits
        assert awaited_lock(spool, replay_lock("files"), "a replay runs", events, held) is None
    said = capsys.readouterr().err
    assert "INFO spark_sink: a replay runs (process " in said
    assert said.endswith("; waiting for its end\n")
    assert awaited_lock(spool, replay_lock("files"), "a replay runs", events, held) is not None
    with held, pytest.raises(SpoolInUseError, match="dead letters cannot be replayed while the sink runs"):
        replay(tmp_path)
