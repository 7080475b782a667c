"""The writes of a plan, one mutation after the other, change what it says."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from google.cloud.spanner_v1.keyset import KeyRange, KeySet

from emulator.workload.contents import Contents
from emulator.workload.plan import Planner
from emulator.workload.tables import TABLES

_INVOICES = "sales.Invoices"


class Rows:
    """The keys of the invoices of a database to which mutations are applied in order."""

    def __init__(self) -> None:
        self.invoices = set[str]()

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if table == _INVOICES:
            self.invoices.update(str(row[0]) for row in rows)

    update = insert_or_update = replace = insert

    def delete(self, table: str, keys: KeySet) -> None:
        if table == _INVOICES:
            self.invoices -= {str(key[0]) for key in keys.keys}
            self.invoices -= {key for key in self.invoices if any(_is_in(key, span) for span in keys.ranges)}


def _is_in(key: str, span: KeyRange) -> bool:
    assert span.start_closed is not None
    assert span.end_open is not None
    return int(span.start_closed[0]) <= int(key) < int(span.end_open[0])


@pytest.mark.parametrize("seed", [943466, *range(10)])
def test_a_range_that_is_deleted_has_no_row_that_the_same_transaction_inserts(seed: int) -> None:
    contents, rows = Contents(TABLES), Rows()
    planner = Planner(contents, Random(seed), "googlesql", average_size=5, rows_per_table=200, run_length=1)
    for _ in range(200):
        plan = planner.transaction()
        for write in plan.writes:
            write(rows)  # type: ignore[arg-type]
        contents.apply(plan.mods)
        if plan.statement is not None:
            rows.invoices = {str(key[0]) for key in contents.rows[_INVOICES]}
        assert rows.invoices == {str(key[0]) for key in contents.rows[_INVOICES]}
