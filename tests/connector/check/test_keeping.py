"""``check`` says whether ``spool.max_bytes`` has room for ``spool.keep``."""

from pathlib import Path

import pytest

from connector.check.keeping import warnings_of_keep
from connector.config.sections import SpoolConfig
from connector.core.epoch import SealedEpoch
from connector.core.timestamps import SECOND
from connector.spool.reading import Spool
from connector.spool.summaries import held_bytes
from connector.spool.writing import initialize
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import CUT, NAME, NOW, SINGERS, pruned_whenever_read, writer_of


def spool_of(folder: Path, seconds: int) -> Spool:
    """A spool that spans so much commit time in ten epochs."""
    spool = Spool.at(folder / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    writer, step = writer_of(spool), seconds * SECOND // 10
    for low in range(AT - 1, AT - 1 + 10 * step, step):
        one = record(commit_timestamp=low + step, server_transaction_id=f"tx{low}")
        writer.seal(SealedEpoch(low, low + step, (one,), one.size), CUT, now=NOW)
    return spool


def warned(spool: Spool, keep: str, most: int) -> list[str]:
    return list(warnings_of_keep(spool, SpoolConfig.model_validate({"keep": keep, "max_bytes": most})))


def test_a_spool_that_will_keep_less_is_warned_of_by_the_rate_of_what_it_holds(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, 3600)
    held = held_bytes(spool.summaries(1, 10))
    (line,) = warned(spool, "10h", held * 5)
    assert line.startswith("spool.keep: 10h at the rate of the last 1h are")
    assert line.endswith("about 4h will be kept")
    assert not warned(spool, "3h", held * 5)
    assert not warned(spool, "0s", 1)


def test_a_spool_that_spans_some_minutes_says_nothing_about_days(tmp_path: Path) -> None:
    assert not warned(spool_of(tmp_path, 60), "7d", 1)


def test_a_spool_that_is_pruned_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spool_of(tmp_path, 3600)
    pruned_whenever_read(spool, writer_of(spool), monkeypatch)
    (line,) = warned(spool, "10h", 1)
    assert "at the rate of the last 42m" in line
