"""Windows are compared with the model. For a campaign: ``PROPERTY_EXAMPLES=10000 pytest tests/property/windows``."""

from collections import Counter

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

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
@effort(1000)
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
    return kind(seed, options, Roughness(ends_for_nothing=0.0, steps=60), windows=seed % 6)


@pytest.mark.parametrize(("kind", "also"), [(Windows, "merges across shares"), (MutableWindows, "repeats")])
def test_the_model_covers_every_kind_of_window(kind: type[Windows], also: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        windows = of_seed(kind, seed)
        windows.run()
        counts += windows.counts
    assert {"shares", "crashes", "breaks", "omissions", also} <= set(counts)
