"""`spanner-cdc cuts CONFIG` lists the published cuts of lakehouse tables."""

from contextlib import nullcontext
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from connector.core.timestamps import format_rfc3339
from spark_sink.cuts_command import main
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.cuts import listing
from tests.spark_sink.cuts.bank import TABLES
from tests.spark_sink.cuts.campaign import Campaign
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE


def test_a_table_that_did_not_change_keeps_its_version_and_the_command_lists_each_cut(
    lake: SparkSession,
    merging_format: Format,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = Campaign(lake, merging_format, tmp_path, seed=1)
    process = campaign.process()
    campaign.deliver(*process)
    campaign.bank.open_account(TABLES[0])
    campaign.deliver(*process)
    store = process[0].cut_store(lake)
    assert store is not None
    before, after = store.cuts()
    versions = [{name: table.version for name, table in cut.tables.items()} for cut in (before, after)]
    assert versions[0][TABLES[0]] != versions[1][TABLES[0]]
    assert versions[0][TABLES[1]] == versions[1][TABLES[1]] != ""

    monkeypatch.setattr(listing, "started", lambda *_: nullcontext(lake))
    path = tmp_path / "config.yaml"
    sink = f"{{type: tables, format: {merging_format}, path: {tmp_path / 'lake'}}}"
    path.write_text(f"source: {SOURCE}\nspool: {{path: {campaign.bank.maker.path}}}\nsink: {sink}\n")
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{format_rfc3339(cut.timestamp)}  epoch {cut.epoch}  2 tables complete" for cut in (before, after)
    ]
    assert main([str(path), "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert [{name: table["version"] for name, table in cut["tables"].items()} for cut in found] == versions
