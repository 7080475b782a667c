"""Scripted change streams for the public API, and the configurations that read them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import yaml

from connector import Transaction
from connector.core.timestamps import SECOND, format_rfc3339
from emulator import CommittedMod, FaultPlan, Scenario, ScriptedServer, Table

ORIGIN = 1_790_000_000 * SECOND + 123_456_789
SECONDS = 20


def drawn(seed: int = 7, *, transactions: int = 120, **more: object) -> Scenario:
    """A change stream of some minutes' history with splits and merges, and a model of what was committed."""
    options: dict[str, object] = {"dialect": "googlesql", "mode": "IMMUTABLE_KEY_RANGE", **more}
    return Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=SECONDS,
        transactions=transactions,
        schema_change=False,
        **options,  # type: ignore[arg-type]
    )


@contextmanager
def serving(scenario: Scenario, *, faults: FaultPlan | None = None, speed: float = 1.0) -> Iterator[ScriptedServer]:
    """A server whose clock shows a time after all that was committed."""
    begins = scenario.history.horizon + SECOND
    with ScriptedServer.started(scenario, begins=begins, faults=faults, speed=speed) as server:
        yield server


def settings(
    server: ScriptedServer,
    *,
    start: int | None = None,
    end: int | None = None,
    ends: bool = True,
    spool: str | Path = "spool",
    source: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """A configuration that reads all of a server's stream, or from ``start`` to ``end`` in nanoseconds."""
    told = server.engine.scenario
    end = told.history.horizon if end is None else end
    return {
        "source": {
            "project": told.project,
            "instance": told.instance,
            "database": told.database,
            "change_stream": told.change_stream,
            "emulator_host": server.host,
            "start": format_rfc3339(told.history.origin if start is None else start),
            **({"end": format_rfc3339(end)} if ends else {}),
            **(source or {}),
        },
        "spool": {"path": str(spool), "seal_interval": "50ms"},
        "status": {"port": 0},
    }


def written(path: Path, node: Mapping[str, object]) -> Path:
    """A configuration as a file."""
    path.write_text(yaml.safe_dump(dict(node)), encoding="utf-8")
    return path


def transactions(scenario: Scenario) -> list[list[CommittedMod]]:
    """The committed mods, a list a transaction, in commit order."""
    return [list(group) for _, group in groupby(scenario.committed, key=lambda mod: mod.transaction)]


Row = tuple[str, str, dict[str, object], dict[str, object]]
"""Table, mod type, key, values."""


def expected(scenario: Scenario) -> list[list[Row]]:
    """The events of each transaction of a scenario."""
    return expected_of(scenario.committed, scenario.tables)


def expected_of(mods: Sequence[CommittedMod], tables: Sequence[Table]) -> list[list[Row]]:
    """The events of each transaction, as the API has to give them, of a stream that captures whole new rows."""
    by_name = {table.name: table for table in tables}
    grouped = groupby(mods, key=attrgetter("transaction"))
    return [[_row(mod, by_name[mod.table]) for mod in of_one] for _, of_one in grouped]


def _row(mod: CommittedMod, table: Table) -> Row:
    kinds = {column.name: column.type for column in table.columns}
    key = {name: _value(kinds[name], value) for name, value in mod.keys.items()}
    values = {} if mod.mod_type == "DELETE" else mod.row
    return mod.table, mod.mod_type, key, key | {name: _value(kinds[name], value) for name, value in values.items()}


def _value(kind: str, value: object) -> object:
    if isinstance(value, list):
        return [_value(kind, item) for item in value]
    if value is None or kind not in ("INT64", "JSON"):
        return value
    return int(str(value)) if kind == "INT64" else json.loads(str(value))


def rows_of(transaction: Transaction) -> list[Row]:
    """The events of a transaction, to compare with :func:`expected`."""
    return [(event.table, event.mod_type, event.key, event.values) for event in transaction.events]
