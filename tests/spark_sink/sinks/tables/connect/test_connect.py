"""Spark Connect, whose sessions have no JVM of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from connector.errors import ConfigurationError
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.session import session_options
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.spools import SpoolMaker


@pytest.mark.spark
@pytest.mark.usefixtures("pandas")
def test_tables_are_merged_through_spark_connect_each_epoch_once(merging_format: Format, tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    for epoch in range(1, 5):
        spool.seal(change(epoch, [epoch, epoch + 1], Name=f"{epoch}"))
    program = [
        sys.executable, "-m", "tests.spark_sink.sinks.tables.connect.merging",
        merging_format, str(tmp_path / "lake"), spool.path,
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(program, stdout=subprocess.PIPE, stderr=log, env=os.environ, timeout=600, check=False)
    assert done.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "session": "pyspark.sql.connect.session",
        "merge": [[1, "1"], [2, "2"], [3, "3"], [4, "4"], [5, "4"]],
        "append": sorted([key, str(epoch)] for epoch in range(1, 5) for key in (epoch, epoch + 1)),
    }


def store(*commits: str | None, first: int) -> DeltaStore:
    """The store of a table that has these commits, the newest first, through Spark Connect."""
    session = Mock(spec=["sql"])
    rows = [{"version": first + index, "userMetadata": text} for index, text in enumerate(reversed(commits))]

    def sql(statement: str) -> Mock:
        found = rows[::-1][: int(statement.rpartition(" ")[2])]
        return Mock(**{"select.return_value.collect.return_value": found})

    session.sql = sql
    return DeltaStore(session, TableOptions("delta", "/lake", None, "merge", "apply"), "spanner-cdc.spool.sink")


def test_the_last_epoch_is_found_among_the_commits_of_others() -> None:
    own = "spanner-cdc.spool.sink 7 seven its users text"
    assert store("spanner-cdc.spool.other 9 nine", None, own, first=500).applied("Singers") == Offset(7, at="seven")


def test_a_table_without_an_epoch_is_one_whose_whole_history_has_none() -> None:
    assert store(None, "spanner-cdc.spool.other 9 nine", first=0).applied("Singers") == Offset(0)
    with pytest.raises(SinkError, match="the last 1000 commits of delta") as raised:
        store(*[None] * 1001, first=1).applied("Singers")
    assert "not one of Spark Connect" in str(raised.value.hint)


def test_an_option_that_a_server_does_not_allow_is_named_in_one_line() -> None:
    session = Mock()
    session.conf.get.return_value = None
    session.conf.set.side_effect = AnalysisException("[CONFIG_NOT_AVAILABLE] Configuration a.b is not available.")
    with (
        pytest.raises(ConfigurationError, match=r"does not let a\.b be set: \[CONFIG_NOT_AVAILABLE\]"),
        session_options(session, {"a.b": "c"}),
    ):
        raise AssertionError
