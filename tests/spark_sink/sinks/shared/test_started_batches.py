"""Micro-batches of files that were started, under whatever checkpoint and options the next run has."""

import random
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.errors import SpoolError
from connector.spool import consumers
from spark_sink.sinks.files.config import CONSUMER
from spark_sink.sinks.files.plan import FileOptions
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from spark_sink.sources.changes import epoch_stream as stream
from spark_sink.sources.changes.read_limits import ReadMaxBytes
from tests.spark_sink.sinks.shared.sink_runs import FULL, LIMIT, ROOMY, SHAPE, Checkpoint, Life, contents, ids_of
from tests.spark_sink.spools import START, SpoolMaker


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "NEWS_WAIT", 0.0)


def test_a_minute_that_was_released_early_is_not_written_longer_under_another_checkpoint(spool: SpoolMaker) -> None:
    spool.fill(2)
    first = Life(spool, Checkpoint(), FULL)
    assert first.plan()
    list(first.groups())
    first.kill()
    before = contents(first.root)
    spool.fill(1)
    second = Life(spool, Checkpoint(), ROOMY, replace(SHAPE, gzip=True))
    assert second.plan()
    list(second.groups())
    second.commit()
    assert contents(second.root) == before
    assert not second.plan()
    spool.seal(high=START + MINUTE)
    second.run()
    assert len(contents(second.root)) == 2
    assert len([name for name in contents(second.root) if name.endswith(".gz")]) == 1


def test_all_batches_after_the_consumers_record_are_repeated_as_they_were(spool: SpoolMaker) -> None:
    first = Life(spool, Checkpoint(), FULL)
    for _ in range(3):
        spool.fill(2)
        first.run()
    first.kill()
    before = contents(first.root)
    consumers.record(spool.spool, CONSUMER, 2, now=0)  # in a bucket it is not written with every batch
    StartedBatches(spool.spool, CONSUMER).begin(StartedBatch(first=3, last=4, pinned=SHAPE.to_text()), done=2)
    spool.fill(1)
    second = Life(spool, Checkpoint(), ROOMY, replace(SHAPE, by_minute=False))
    second.run()
    assert {name: data for name, data in contents(second.root).items() if name in before} == before
    assert ids_of(second.root) == list(range(35))


def test_what_the_consumer_has_passed_is_not_kept(spool: SpoolMaker) -> None:
    life = Life(spool, Checkpoint(), FULL)
    for _ in range(5):
        spool.fill(1)
        life.run()
    kept = orjson.loads(Path(spool.path, "consumers/files.begun").read_bytes())["batches"]
    assert [(batch["first"], batch["last"]) for batch in kept] == [(5, 5)]
    assert [one.consumer for one in consumers.consumers(spool.spool)] == ["files"]


def test_a_plan_that_begins_before_a_started_batch_ends_before_it(spool: SpoolMaker) -> None:
    spool.fill(6)
    begun = StartedBatches(spool.spool, CONSUMER)
    begun.begin(StartedBatch(first=4, last=5, pinned=SHAPE.to_text()), done=0)
    life = Life(spool, Checkpoint(), FULL)
    life.run()
    assert sorted(name.rsplit("_", 2)[1] for name in contents(life.root)) == ["1", "4", "6"]
    assert ids_of(life.root) == list(range(30))


@pytest.mark.parametrize("data", [b"", b'{"version":1}', b'{"version":1,"batches":[{"first":1}]}'])
def test_a_damaged_record_is_an_error(spool: SpoolMaker, data: bytes) -> None:
    spool.fill(1)
    spool.spool.storage.replace("consumers/files.begun", data)
    with pytest.raises(SpoolError, match=r"corrupt file .*consumers/files\.begun"):
        StartedBatches(spool.spool, CONSUMER).at(1)


@pytest.mark.long(but=6)
@pytest.mark.parametrize("seed", range(25))
def test_runs_that_end_anywhere_with_any_checkpoint_and_options_write_each_event_once(
    spool: SpoolMaker, seed: int
) -> None:
    dice = random.Random(seed)
    checkpoint, root = Checkpoint(), Path(spool.path).parent / "out"
    expected: list[int] = []
    for _ in range(dice.randint(4, 12)):
        for _ in range(dice.randint(0, 4)):
            expected += spool.fill(1, 2, step=dice.choice((SECOND, 20 * SECOND)))
        if dice.random() < 0.5:
            checkpoint = Checkpoint()
        shape = FileOptions(
            gzip=False,
            rotate_bytes=dice.choice((1500, 250_000_000)),
            by_minute=dice.random() < 0.7,
        )
        life = Life(spool, checkpoint, dice.choice((FULL, ROOMY)), shape)
        for _ in range(dice.randint(0, 3)):
            if not life.plan(dice.choice((LIMIT, ReadMaxBytes(1)))):
                break
            writes = list(life.groups()) if dice.random() < 0.6 else []
            if not writes:
                for _ in zip(range(dice.randint(0, 2)), life.groups(), strict=False):
                    pass  # killed between two groups
                break
            if dice.random() < 0.8:
                life.commit()
        life.kill()
    spool.seal(high=spool.watermark + SECOND, final=True)
    last = Life(spool, checkpoint)
    last.run()
    last.kill()
    assert ids_of(root) == expected, f"seed {seed}"
