"""Two tables, joined as of complete minutes, show no half of a transaction, whatever is killed when."""

from pathlib import Path
from random import Random

import pytest

from tests.spark_sink.cuts.killed_deliveries import seen


@pytest.mark.long(but=1)
@pytest.mark.parametrize("by_minute", [True, False])
def test_the_sum_is_right_in_every_cut_and_wrong_at_least_once_without(tmp_path: Path, by_minute: bool) -> None:
    found = seen(tmp_path, Random(7), minutes=12, kills=6, by_minute=by_minute)
    assert (found.cuts, found.wrong) == (12, [])
    assert found.kills >= 3
    assert found.halves, "half a transaction is seen without cuts"
