"""A short version of the campaign, itself a campaign: its histories depend on when epochs are sealed."""

from collections import Counter
from pathlib import Path

import pytest

from emulator import Emulator
from tests.spark_sink.sinks.spanner.altering.databases import between_two

pytestmark = pytest.mark.emulator


@pytest.mark.long
@pytest.mark.parametrize(("mode", "dialect"), [("rows", "googlesql"), ("transactions", "postgresql")])
def test_every_cell_is_the_sources_though_tables_are_altered_while_the_sink_is_down(
    emulator: Emulator, tmp_path: Path, mode: str, dialect: str
) -> None:
    assert between_two(emulator.host, dialect, tmp_path, mode, 2, Counter(), rounds=4) == ""
