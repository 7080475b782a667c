"""The Spark job of the guide is the program that the page shows, and delivers each change once."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from tests.docs.clean import BIN, environment, shown
from tests.docs.pages import ROOT
from tests.spark_sink.spools import NAME, START, SpoolMaker, record

SCRIPT = ROOT / "docs" / "guide" / "examples" / "own_job.py"
KEY = ColumnType("SingerId", '{"code":"INT64"}', True, 1)


def singers(at: int, keys: range, mod_type: str = "INSERT") -> DataChangeRecord:
    """A record that changes these singers."""
    mods = tuple(Mod(f'{{"SingerId":"{key}"}}', "{}" if mod_type == "DELETE" else '{"Name":"n"}', "{}") for key in keys)
    return replace(record(START + at * SECOND, keys, mod_type=mod_type), column_types=(KEY, NAME), mods=mods)


def test_the_page_shows_the_program() -> None:
    assert shown("docs/guide/own-spark-job.md", "python") == [SCRIPT.read_text()]


@pytest.mark.long
@pytest.mark.spark
def test_each_change_is_there_once_though_spark_repeats_a_micro_batch(tmp_path: Path) -> None:
    spool, lake, checkpoint = SpoolMaker(tmp_path / "spool"), tmp_path / "lake", tmp_path / "checkpoint"

    def run() -> str:
        command = [str(BIN / "python"), str(SCRIPT), str(tmp_path / "spool"), str(lake), str(checkpoint)]
        done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    spool.seal(singers(1, range(5)))
    assert run() == "5 rows"
    spool.seal(singers(2, range(1), "DELETE"))
    spool.seal(singers(3, range(1, 3), "UPDATE"))
    for record_of_spark in ("0", ".0.crc"):  # as if it had been killed after it wrote, and before Spark recorded it
        (checkpoint / "commits" / record_of_spark).unlink()
    assert run() == "4 rows"
    changes = pq.read_table(lake / "changes", columns=["_uuid"])
    assert len(changes) == len(set(changes["_uuid"].to_pylist())) == 8
    assert len(list((lake / "changes").glob("batch=*"))) == 2
