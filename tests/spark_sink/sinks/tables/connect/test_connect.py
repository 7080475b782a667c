"""Spark Connect, whose sessions have no JVM of their own."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from connector.errors import ConfigurationError
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.session import session_options, writing
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.connect.programs import ran
from tests.spark_sink.spools import SpoolMaker


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("pandas")
def test_tables_are_merged_through_spark_connect_each_epoch_once(merging_format: Format, tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    for epoch in range(1, 5):
        spool.seal(change(epoch, [epoch, epoch + 1], Name=f"{epoch}"))
    found = ran(tmp_path / "log", "connect.merging", merging_format, str(tmp_path / "lake"), spool.path)
    assert found == {
        "session": "pyspark.sql.connect.session",
        "merge": [[1, "1"], [2, "2"], [3, "3"], [4, "4"], [5, "4"]],
        "append": sorted([key, str(epoch)] for epoch in range(1, 5) for key in (epoch, epoch + 1)),
    }


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("pandas")
@pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse")
def test_where_options_and_persisting_are_refused_delta_is_appended_to_each_epoch_once(tmp_path: Path) -> None:
    """As on Databricks serverless."""
    spool = SpoolMaker(tmp_path / "spool")
    for epoch in range(1, 5):
        spool.seal(change(epoch, [epoch], Name=f"{epoch}"))
    found = ran(tmp_path / "log", "connect.serverless", str(tmp_path / "lake"), spool.path)
    assert found["append"] == [[1, "1"], [2, "2"], [3, "3"], [4, "4"]]
    assert "does not let spark.databricks.delta.write.txnAppId be set" in found["merge"]
    assert "Databricks serverless" in found["merge"]


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


def serverless() -> Mock:
    """A session that offers one option, as Databricks serverless offers few."""
    offered = {"spark.sql.ansi.enabled": "false"}

    def check(name: str) -> None:
        if name not in offered:
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available. SQLSTATE: 42K0I")

    def get(name: str, _: None) -> str:
        check(name)
        return offered[name]

    def put(name: str, value: str) -> None:
        check(name)
        offered[name] = value

    session = Mock(session_id="serverless", offered=offered)
    session.conf.get.side_effect, session.conf.set.side_effect = get, put
    session.conf.unset.side_effect = check
    return session


def test_an_option_that_a_server_does_not_allow_is_named_in_one_line() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"does not let a\.b be set: \[CONFIG_NOT_AVAILABLE\]") as raised,
        session_options(serverless(), {"a.b": "c"}),
    ):
        raise AssertionError
    assert "Databricks serverless" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_session_without_the_option_of_timestamps_is_written_in_with_ansi() -> None:
    session = serverless()
    with writing(session):
        assert session.offered == {"spark.sql.ansi.enabled": "true"}
    assert session.offered == {"spark.sql.ansi.enabled": "false"}
    session.conf.unset.assert_not_called()


def test_a_session_that_refuses_ansi_is_not_written_in() -> None:
    session = serverless()
    session.conf.set.side_effect = AnalysisException("[CONFIG_NOT_AVAILABLE] Configuration is not available.")
    with pytest.raises(ConfigurationError, match=r"does not let spark\.sql\.ansi\.enabled be set"), writing(session):
        raise AssertionError
