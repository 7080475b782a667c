"""The rows that files amount to, and those that the database has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emulator import CommittedMod, SampleDatabase, Workload
from tests.integration.delivered import canonical, in_unified_types

State = dict[tuple[str, str], str]
"""By table and key, a row; key and row as canonical JSON."""

_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.\d+Z")
"""The emulator's change streams omit it; its queries do not."""


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every event of the JSON lines below a folder."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            yield json.loads(line)


def key_of(event: dict[str, Any]) -> tuple[str, str]:
    """An event's table and key."""
    names = event["source_metadata"]["primary_keys"]
    return event["object"], _whole_seconds(canonical({name: event["payload"][name] for name in names}))


def position_of(event: dict[str, Any]) -> tuple[int, int, int]:
    """The position by which the changes of a row are ordered."""
    keys = event["sort_keys"]
    return keys[1], int(keys[2]), keys[3]


def state_of_files(folder: Path) -> State:
    """The newest row of each key; those that were deleted are omitted."""
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events(folder):
        known = newest.get(key_of(event))
        if known is None or position_of(event) > position_of(known):
            newest[key_of(event)] = event
    return {
        key: _whole_seconds(canonical(event["payload"]))
        for key, event in newest.items()
        if not event["source_metadata"]["is_deleted"]
    }


def state_of_database(sample: SampleDatabase, workload: Workload) -> State:
    """The rows of the tables of a workload, as files would have them."""
    mods = []
    for table in sample.tables:
        names = [column.name for column in table.key]
        for row in workload.rows(table.name).values():
            keys = {name: row[name] for name in names}
            values = {name: value for name, value in row.items() if name not in names}
            mods.append(CommittedMod(0, 0, table.name, "INSERT", keys, values, values, {}))
    found = in_unified_types(mods, sample, "NEW_ROW")
    return {(mod[1], _whole_seconds(mod[3])): _whole_seconds(mod[4]) for mod in found}


def _whole_seconds(text: str) -> str:
    return _FRACTION.sub(r"\1Z", text)


def differences(expected: State, found: State) -> str:
    """The number of rows that differ, and their tables."""
    wrong = {key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)}
    first = sorted(wrong)[:2]
    return f"{len(wrong)} of {len(expected)} rows differ: {[(key, expected.get(key), found.get(key)) for key in first]}"
