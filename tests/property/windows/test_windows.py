"""Windows are compared with the model.

For a campaign: ``PROPERTY_EXAMPLES=10000 pytest --run-long tests/property/windows``.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from connector.core.partitions import CutPartition, LeastParent, PartitionGraph
from connector.errors import StreamError
from tests.property.effort import effort
from tests.property.reading.change_stream import HistoryOptions
from tests.property.reading.reading import Roughness
from tests.property.windows.model_windows import MutableWindows, Windows

histories = st.builds(
    HistoryOptions,
    instants=st.integers(3, 24),
    churn=st.integers(0, 20),
    transactions=st.integers(1, 30),
    first_partitions=st.integers(1, 5),
    empty_partitions=st.booleans(),
)
roughness = st.builds(
    Roughness,
    breaks=st.sampled_from((0.0, 0.04, 0.15)),
    ends_for_nothing=st.just(0.0),
    crashes=st.sampled_from((0.0, 0.005, 0.03)),
    omits=st.sampled_from((0.0, 0.3, 1.0)),
    steps=st.sampled_from((0, 30, 100)),
)


@pytest.mark.parametrize("kind", [Windows, MutableWindows])
@effort(200)
@given(seed=st.integers(0, 2**32), options=histories, rough=roughness, windows=st.integers(0, 8))
def test_windows_read_in_shares_are_the_history_in_order_each_record_once(
    kind: type[Windows], seed: int, options: HistoryOptions, rough: Roughness, windows: int
) -> None:
    note(f"seed {seed}")
    kind(seed, options, rough, windows).run()


def of_seed(kind: type[Windows], seed: int) -> Windows:
    options = HistoryOptions(
        instants=6 + seed % 14, churn=seed % 17, transactions=5 + seed % 20, first_partitions=1 + seed % 4
    )
    options = replace(options, empty_partitions=seed % 2 > 0)
    return kind(seed, options, Roughness(ends_for_nothing=0.0, steps=60), windows=seed % 6)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("kind", "also"), [(Windows, {"merges across shares", "orphans"}), (MutableWindows, {"repeats"})]
)
def test_the_model_covers_every_kind_of_window(kind: type[Windows], also: set[str]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        windows = of_seed(kind, seed)
        windows.run()
        counts += windows.counts
    assert {"shares", "crashes", "breaks", "omissions"} | also <= set(counts)


class FollowsWhateverItHears(LeastParent):
    def __call__(self, announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
        return super().__call__(announcer, child, frozenset())


class ForgetsWhatItDeclines(LeastParent):
    @property
    def declined(self) -> list[tuple[CutPartition, str]]:
        return []


@pytest.mark.parametrize("rule", [FollowsWhateverItHears, ForgetsWhatItDeclines])
def test_a_mutant_of_the_rule_is_caught(rule: type[LeastParent]) -> None:
    class Mutant(Windows):
        rule_type = rule

    for seed in range(100):
        try:
            of_seed(Mutant, seed).run()
        except (AssertionError, StreamError):
            return
    pytest.fail(f"{rule.__name__} is not caught on 100 seeds")


def test_children_that_are_announced_after_the_end_are_left_to_a_later_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionGraph, "_leaves_to_next", lambda *_: False)
    with pytest.raises((AssertionError, StreamError)):
        _run(range(100))


def _run(seeds: range) -> None:
    for seed in seeds:
        of_seed(Windows, seed).run()
