"""The rows of a scripted database's tables as of a timestamp: what the history has written until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from emulator.scenario.scenario import Scenario
from emulator.workload.journal import Row

Rows = Mapping[str, Sequence[Row]]
"""The rows of each table by its name, in the order of their keys' JSON texts; values are in Spanner's JSON encoding."""


def contents_at(scenario: Scenario, timestamp: int) -> Rows:
    """Returns all rows as of a timestamp (nanoseconds since 1970, inclusive).

    A column that was added later is absent in rows that were not written since.
    """
    rows: dict[str, dict[bytes, Row]] = {table.name: {} for table in scenario.tables}
    for change in scenario.history.in_commit_order():
        if change.commit_timestamp > timestamp:
            break
        contents = rows.setdefault(change.table, {})
        for mod in change.mods:
            key = orjson.dumps(mod.keys)
            if change.mod_type == "DELETE":
                contents.pop(key, None)
            else:
                old = contents.get(key, {}) if change.mod_type == "UPDATE" else {}
                contents[key] = {**mod.keys, **old, **mod.new_values}
    return {table: [found[key] for key in sorted(found)] for table, found in rows.items()}
