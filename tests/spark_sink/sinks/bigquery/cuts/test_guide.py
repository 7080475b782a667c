"""The statements of the guide read tables as of a cut; local-bigquery takes a constant in place of the variable."""

import re
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339
from spark_sink.sinks.bigquery.cuts.store import BigQueryCuts
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.cuts.cut_runs import CutScenario
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at

_GUIDE = Path(__file__).parents[5] / "docs" / "guide" / "cuts.md"


def statements() -> list[str]:
    """The statements in the section on BigQuery."""
    section = _GUIDE.read_text().split("## BigQuery")[1].split("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


def of_spool(statement: str, spool_id: str) -> str:
    """A statement with the id of the spool that the cuts are of."""
    return re.sub(r"spool_id = '\w+'", f"spool_id = '{spool_id}'", statement)


@pytest.mark.long
def test_the_statements_of_the_guide_have_the_sum_and_the_rows_of_the_cut(
    local_bigquery: LocalBigQuery, tmp_path: Path
) -> None:
    views, bound, time = statements()
    bound = re.sub(r"<= '[^']*'", "<= '2100-01-01 00:00:00+00'", bound)
    run = CutScenario(local_bigquery, tmp_path / "a", "append-only", 3, views=True)
    run.transfers.seal(5)
    run.deliver()
    assert run.total(views.replace("replica.", "{0}.")) == run.transfers.total
    bound = of_spool(bound, run.scenario.maker.spool_id)
    found = run.scenario.query(bound.replace("replica.", "{0}."))
    kept = {row["Id"]: row["Balance"] for row in found if row["datastream_metadata"]["change_type"] != "DELETE"}
    assert kept == run.transfers.balances["Checking"]
    merged = CutScenario(local_bigquery, tmp_path / "m", "merge-load", 3)
    merged.transfers.seal(5)
    merged.deliver()
    (cut,) = merged.published()
    variable, script = of_spool(time, merged.scenario.maker.spool_id).replace("replica.", "{0}.").split(";", 1)
    assert variable.startswith("DECLARE cut TIMESTAMP DEFAULT (")
    ((as_of,),) = [row.values() for row in merged.scenario.query(variable.partition("DEFAULT ")[2][1:-1])]
    assert cut.tables["Checking"].version == format_rfc3339(int(as_of.timestamp() * 1_000_000) * 1000)
    merged.transfers.seal(5)
    with killed_at(BigQueryCuts, "publish"), pytest.raises(KilledError):
        merged.deliver()
    query = script.replace("AS OF cut", f"AS OF TIMESTAMP '{as_of}'")
    assert merged.total(query) == merged.transfers.total
