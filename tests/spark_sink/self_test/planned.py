"""A workload that is planned and not committed, and the events of a server that returns it unchanged."""

import json
from random import Random
from typing import Any

from connector.core.timestamps import SECOND, format_rfc3339
from spark_sink.self_test.options import Names
from spark_sink.self_test.tables import WorkloadColumn, WorkloadTable, tables, uuid_table
from spark_sink.self_test.values import Limits, Value
from spark_sink.self_test.workload import DELETE, UPDATE, Committed, WorkloadMod, WorkloadPlanner

NAMES = Names("0badcafe")
TABLES = {table.name: table for table in (*tables(NAMES), uuid_table(NAMES))}


def workload(seed: int, *, is_emulator: bool = False) -> tuple[list[Committed], WorkloadPlanner]:
    """The transactions of a seed, each a second after the one before, and the model of the tables after them."""
    planner = WorkloadPlanner(TABLES, Random(seed), Limits(is_emulator, 9))
    made = [
        Committed(number * SECOND, planned.mods, planned.tag)
        for number, planned in enumerate(planner.transactions(), 1)
        if planned.mods
    ]
    return made, planner


def events(committed: list[Committed], *, whole_rows: bool = True) -> list[dict[str, Any]]:
    """An event for each mod, in the order of the commits."""
    return [_event(transaction, mod, whole_rows) for transaction in committed for mod in transaction.mods]


def _event(transaction: Committed, mod: WorkloadMod, whole_rows: bool) -> dict[str, Any]:
    table = TABLES[mod.table]
    kept = set(table.columns)
    if mod.mod_type == DELETE or (mod.mod_type == UPDATE and not whole_rows):
        kept = {column for column in kept if column.name in {*table.key, *mod.changed}}
    return {
        "object": table.name,
        "source_timestamp": format_rfc3339(transaction.timestamp),
        "source_metadata": {"mod_type": mod.mod_type, "transaction_tag": transaction.tag},
        "payload": {column.name: _value(column, mod.row[column.name]) for column in kept},
    }


def _value(column: WorkloadColumn, value: Value) -> Any:
    if isinstance(value, list):
        return [_value(column, one) for one in value]
    if value is not None and column.kind == "INT64":
        return int(str(value))
    return json.loads(str(value)) if value is not None and column.kind == "JSON" else value


def table_of(ending: str) -> WorkloadTable:
    """The table whose name ends so."""
    return TABLES[NAMES.of(ending)]
