"""The BigQuery sink against the real service: a short history in each mode. Skipped unless a dataset is named.

``SPANNER_CDC_REAL_DATASET=project.dataset``; its tables get a random prefix, and are deleted.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.cloud import bigquery

from connector.records import ColumnType
from connector.timestamps import SECOND
from tests.spark.bigquery_lives import Life, configured
from tests.spark.spools import KEY, NAME, START, SpoolMaker, record

NAMED = os.environ.get("SPANNER_CDC_REAL_DATASET", "")

pytestmark = [
    pytest.mark.real_gcp,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not NAMED, reason="it needs SPANNER_CDC_REAL_DATASET=project.dataset"),
]

COLUMNS = (
    KEY,
    NAME,
    *(
        ColumnType(code.title(), f'{{"code":"{code}"}}', False, place)
        for place, code in enumerate(("BOOL", "FLOAT64", "NUMERIC", "BYTES", "DATE", "TIMESTAMP", "JSON"), 3)
    ),
    ColumnType("Array", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 10),
)
VALUES = {
    "Name": "n",
    "Bool": True,
    "Float64": 1.5,
    "Numeric": "12.5",
    "Bytes": "aGk=",
    "Date": "2026-01-02",
    "Timestamp": "2026-01-02T03:04:05.123456789Z",
    "Json": '{"a": [1]}',
    "Array": ["1", "2"],
}
LATER = ColumnType("Later", '{"code":"STRING"}', False, 11)

Query = Callable[[str], list[dict[str, object]]]


@pytest.fixture
def prefix() -> Iterator[str]:
    made = f"spanner_cdc_{secrets.token_hex(4)}_"
    yield made
    project, _, dataset = NAMED.partition(".")
    client = bigquery.Client(project=project)
    for table in client.list_tables(dataset):
        if table.table_id.startswith(made):
            client.delete_table(table.reference)


@pytest.fixture
def query() -> Query:
    client = bigquery.Client(project=NAMED.partition(".")[0])
    return lambda sql: [dict(row) for row in client.query_and_wait(sql)]


def life(spool: SpoolMaker, prefix: str, mode: str) -> Life:
    project, _, dataset = NAMED.partition(".")
    return Life(configured(spool.path, project=project, dataset=dataset, prefix=prefix, mode=mode, max_staleness="0s"))


def history(path: Path) -> SpoolMaker:
    """Five rows, of which one is updated, and one deleted; then a new column."""
    spool = SpoolMaker(path)
    spool.seal(record(START + SECOND, range(5), columns=COLUMNS, values=VALUES))
    spool.seal(record(START + 2 * SECOND, [1], columns=COLUMNS, values={**VALUES, "Name": "x"}, mod_type="UPDATE"))
    spool.seal(record(START + 3 * SECOND, [0], columns=COLUMNS, values=VALUES, mod_type="DELETE"))
    later = {**VALUES, "Name": "y", "Later": "z"}
    spool.seal(record(START + 4 * SECOND, [2], columns=(*COLUMNS, LATER), values=later, mod_type="UPDATE"))
    return spool


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_a_merged_table_has_the_rows_of_the_source(tmp_path: Path, prefix: str, query: Query, mode: str) -> None:
    spool = history(tmp_path / "spool")
    life(spool, prefix, mode).run()
    wanted = [(1, "x", None), (2, "y", "z"), (3, "n", None), (4, "n", None)]
    found: list[tuple[object, ...]] = []
    deadline = time.monotonic() + 600
    while found != wanted and time.monotonic() < deadline:  # BigQuery applies changes in its own time
        rows = query(f"SELECT * FROM `{NAMED}.{prefix}Singers` ORDER BY Id")
        found = [(row["Id"], row["Name"], row["Later"]) for row in rows]
    assert found == wanted
    assert {str(row["Numeric"]) for row in rows} == {"12.5"}
    assert [row["Array"] for row in rows] == [[1, 2]] * 4


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_an_appended_table_has_each_change_once(tmp_path: Path, prefix: str, query: Query, mode: str) -> None:
    spool = history(tmp_path / "spool")
    one = life(spool, prefix, mode)
    assert one.plan()
    told = [row for task in one.tasks() for row in one.told(task)]
    one.deliver(told)
    assert life(spool, prefix, mode).run(), "what was begun comes again"
    name = f"{prefix}Singers" + ("_changelog" if mode == "changelog" else "")
    assert query(f"SELECT COUNT(*) AS n FROM `{NAMED}.{name}`") == [{"n": 8}]
