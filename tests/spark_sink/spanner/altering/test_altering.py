"""A short version of the campaign, itself a campaign: its histories depend on when epochs are sealed.

Of 16 seeds in mode ``transactions`` four were wrong. Three of those were faults of the campaign, which are mended. One
left dead letters with ``NOT_FOUND``; a required column that the source has dropped explains them, but that very history
was not seen again.

Open: of the first 12 seeds in mode ``rows`` two (9 and 11, NEW_VALUES) lack changes of a table. Dead letters were
rejected by a replay, and removed by the campaign as those of a table that is gone. Which of the two is wrong is not
known. So this runs with ``--run-slow`` only, until many runs have found all seeds equal.
"""

from collections import Counter
from pathlib import Path

import pytest

from emulator import Emulator
from tests.spark_sink.spanner.altering.databases import between_two

pytestmark = [pytest.mark.emulator, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mode", "dialect"), [("rows", "googlesql"), ("transactions", "googlesql"), ("transactions", "postgresql")]
)
def test_every_cell_is_the_sources_though_tables_are_altered_while_the_sink_is_down(
    emulator: Emulator, tmp_path: Path, mode: str, dialect: str
) -> None:
    assert between_two(emulator.host, dialect, tmp_path, mode, 1, Counter()) == ""
