"""The whole reader on virtual time. For a campaign: ``WHOLE_READER_SEEDS=5000 pytest --run-long tests/property``."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer
from connector.core.partitions import PartitionGraph
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from emulator.scenario.history import PartitionMode
from emulator.scenario.scenario import Scenario, steady
from emulator.scripted.fault_plan import RECOVERABLE, Fault, FaultKind, FaultPlan
from tests.property.effort import share_of
from tests.property.reading import mutants
from tests.property.reading.whole_reader import ORIGIN, WholeReader, of_seed

SEEDS = int(os.environ.get("WHOLE_READER_SEEDS", max(share_of(80), 30)))
MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


def test_random_histories_are_delivered_once_in_commit_order_through_faults_and_crashes() -> None:
    counts: Counter[str] = Counter()
    with counted(counts):
        for seed in range(SEEDS):
            reader = of_seed(seed)
            try:
                reader.run()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            counts += reader.counts
            counts += reader.scenario.churn
    happened = {kind.value for kind in RECOVERABLE} | {"crashes", "splits", "merges", "moves", "starts", "ends"}
    assert happened | {"columns", "records"} <= set(counts), "a disturbance never happened"


@pytest.mark.long
def test_histories_of_placements_are_delivered_once_in_commit_order_through_faults_and_crashes() -> None:
    counts: Counter[str] = Counter()
    for seed in range(max(SEEDS // 4, 12)):
        reader = of_seed(seed, placements=1 + seed % 3)
        try:
            reader.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts += reader.counts
    assert {"crashes", "dropped placements"} <= set(counts)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(8))
def test_placements_that_are_dropped_end_cleanly(seed: int) -> None:
    scenario = Scenario.generate(seed, origin=ORIGIN, seconds=60, transactions=80, churn=20, placements=4)
    assert scenario.placements is not None
    for one in scenario.placements.each:
        if one.emptied:
            one.dropped = one.emptied + (2 + seed % 3) * SECOND
            one.function_dropped = one.dropped + (seed % 2) * 5 * SECOND
    WholeReader(seed, scenario, crashes=seed % 3, faults=FaultPlan()).run()


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_refusal_of_a_functions_start_skips_nothing(seed: int) -> None:
    scenario = Scenario.generate(seed, origin=ORIGIN, seconds=20, transactions=80, churn=20, placements=3)
    faults = FaultPlan().rule(Fault(FaultKind.EXPIRED_START), token=None, times=1 + seed % 2)
    WholeReader(seed, scenario, crashes=0, faults=faults).run()
    assert faults.struck[FaultKind.EXPIRED_START.value]


@pytest.mark.long
def test_a_reader_whose_watermark_does_not_wait_for_the_list_of_functions_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connector.core.partitions.functions.ReadFunctions.listed", lambda *_: None)
    for seed in range(40):
        try:
            of_seed(seed, placements=1 + seed % 3).run()
        except AssertionError:
            return
    pytest.fail("it is not caught on 40 seeds")


@contextmanager
def counted(counts: Counter[str]) -> Iterator[None]:
    """Counts the data change records that are received as columns, and as records."""

    class Counted(EpochBuffer):
        def add(self, token: str, record: DataChangeRecord, *, progress: int) -> bool:
            counts["records"] += 1
            return super().add(token, record, progress=progress)

        def add_all(self, token: str, changes: Changes, *, progress: int) -> tuple[Changes, Changes]:
            counts["columns"] += len(changes)
            return super().add_all(token, changes, progress=progress)

    with patch("connector.reader.read_state.EpochBuffer", Counted):
        yield


@pytest.mark.long
@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow)])
def test_a_thousand_partitions_that_split_and_merge_are_read_through_faults_and_crashes(mode: PartitionMode) -> None:
    scenario = steady(
        7,
        origin=ORIGIN,
        seconds=15,
        partitions=1000,
        records_per_second_per_partition=0.1,
        mods_per_record=2,
        churn_per_minute=1.0,
        mode=mode,
    )
    reader = WholeReader(7, scenario, crashes=2)
    reader.run()
    assert reader.most_open > 950
    assert sum(scenario.churn.values()) > 250


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    "mutant",
    [
        mutants.CleanEndFinishes,
        mutants.WatermarkOfTheFastest,
        mutants.AnnouncersAreParents,
        mutants.WhatWasHeldIsKept,
        mutants.CutInTheMiddleOfAnInstant,
        mutants.ColumnsThatAreKnownAreHeldAgain,
    ],
)
def test_a_mutant_of_the_core_is_caught_in_the_whole_reader(
    mutant: type[PartitionGraph | EpochBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "PartitionGraph" if issubclass(mutant, PartitionGraph) else "EpochBuffer"
    monkeypatch.setattr(f"connector.reader.read_state.{name}", mutant)
    for seed in range(20):
        try:
            of_seed(seed).run()
        except Exception:  # noqa: BLE001 - a mutant may fail in any way
            return
        except ExceptionGroup:
            return
    pytest.fail(f"{mutant.__name__} is not caught on 20 seeds")
