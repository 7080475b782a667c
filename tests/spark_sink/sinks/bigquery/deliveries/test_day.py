"""A virtual day of 50 tables that are written all the time is within BigQuery's quotas, in every mode, by default."""

from pathlib import Path

import pytest

from emulator.bigquery.meter import APPLIES, CONNECTIONS_OF_REGION, CREATE, LOADS, MERGES, SCANNED, SERVICE, Meter
from tests.spark_sink.sinks.bigquery.deliveries.day import DAY, MODES, day

HOURS = 3 * 3600


def check(meter: Meter, mode: str, hours: int) -> None:
    streams, loads = meter.worst_hour(CREATE), meter.total(LOADS)
    assert streams <= SERVICE[CREATE].most * 0.62
    assert loads <= SERVICE[LOADS].most * 0.62 * hours / 24
    assert meter.total(SCANNED) <= SERVICE[SCANNED].most / 2 * hours / 24
    assert meter.peak_open <= CONNECTIONS_OF_REGION / 10
    if mode == "merge":
        assert (streams, loads) == (0, 0)
        assert meter.total(APPLIES) <= 50 * hours
    elif mode == "merge-load":
        assert streams == 0
        assert 0 < loads == meter.total(MERGES) <= 50 * (hours + 1)
    else:
        assert streams > 0
        assert loads == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=() if mode == "merge-load" else pytest.mark.slow) for mode in MODES],
    ids=MODES,
)
def test_some_hours_of_50_tables_are_within_the_quotas_at_the_default_configuration(tmp_path: Path, mode: str) -> None:
    check(day(tmp_path, mode, seconds=HOURS), mode, 3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tables", [50, 500])
def test_a_day_of_many_tables_is_within_the_quotas_at_the_default_configuration(
    tmp_path: Path, mode: str, tables: int
) -> None:
    meter = day(tmp_path, mode, tables, seconds=DAY, size=10**9)
    if tables == 50:
        check(meter, mode, 24)
