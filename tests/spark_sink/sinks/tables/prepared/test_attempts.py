"""Attempts to commit: of a process that was replaced, and after the commit of another one."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.errors import SpoolInUseError
from spark_sink import run
from spark_sink.sinks.tables.applied_epochs import Attempts
from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import target


@pytest.mark.parametrize("is_done", [True, False])
def test_only_an_attempt_after_the_first_asks_whether_another_process_has_committed_the_same_epochs(
    *, is_done: bool
) -> None:
    calls: list[str] = []

    def asked() -> bool:
        calls.append("asked")
        return is_done

    attempts = Attempts(lambda: calls.append("checked"), asked)
    attempts(calls.append, "committed")
    assert calls == ["checked", "committed"]
    attempts(calls.append, "committed")
    assert calls[2:] == (["asked"] if is_done else ["asked", "checked", "committed"])


def test_a_sink_that_was_replaced_since_its_micro_batch_began_commits_to_no_table(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    def taken_over() -> None:
        raise SpoolInUseError("another sink runs")

    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(change(1, [1]))
    run.Sink(lake, sink.config, sink.delivery, taken_over)
    with pytest.raises(SpoolInUseError):
        sink.deliver(1)
    table = target(sink.path, merging_format)
    lake.sql(f"REFRESH TABLE {table}")
    assert lake.table(table).count() == 0
