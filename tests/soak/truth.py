"""Compares the files of a sink with what a scenario committed: each mod must be there once, unchanged, in order."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from connector.core.timestamps import MINUTE, parse
from emulator.scenario.history import Change, ReportedColumn
from emulator.scenario.scenario import Scenario
from emulator.workload.values import Value

Identity = tuple[int, str, str, int, str, str]
"""Commit timestamp, transaction, record sequence, mod index, table and mod type of a mod."""

Order = tuple[int, str, int, int]
"""Commit timestamp, transaction, record sequence as a number, and mod index."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a file; `keys` and `payload` are canonical JSON."""

    identity: Identity
    uuid: str
    keys: str
    payload: str

    @property
    def order(self) -> Order:
        at, transaction, sequence, index, *_ = self.identity
        return at, transaction, int(sequence), index


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file: its table's folder, its first epoch, its number among the table's files of that epoch, and its minute."""

    path: str
    folder: str
    epoch: int
    number: int
    minute: int
    events: list[Event] = field(repr=False)


@dataclass(slots=True)
class Verdict:
    """The comparison of what was delivered with what was committed; `problems` are messages for people."""

    committed: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    unexpected: int = 0
    wrong: int = 0
    out_of_order: int = 0
    split: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.committed == self.delivered and not self.problems


def committed(scenario: Scenario) -> dict[Identity, tuple[str, str]]:
    """Returns every mod of a scenario with its keys and its payload, in Datastream's unified types."""
    return {
        (
            change.commit_timestamp,
            change.server_transaction_id,
            change.record_sequence,
            index,
            change.table,
            change.mod_type,
        ): (
            _unified(change, mod.keys),
            _unified(change, {**mod.keys, **mod.old_values, **mod.new_values}),
        )
        for change in scenario.history.in_commit_order()
        for index, mod in enumerate(change.mods)
    }


def event_files(root: Path) -> list[EventFile]:
    """Returns every file below `root`, by epoch, table and number."""
    return sorted(
        (_event_file(root, path) for path in root.rglob("*.jsonl*") if not path.name.startswith(".")),
        key=lambda file: (file.epoch, file.folder, file.number),
    )


def compare(wanted: dict[Identity, tuple[str, str]], files: list[EventFile]) -> Verdict:
    """Compares files with what was committed."""
    events = [event for file in files for event in file.events]
    found = Counter(event.identity for event in events)
    verdict = Verdict(committed=len(wanted), delivered=len(events))
    lost = [identity for identity in wanted if identity not in found]
    unexpected = [identity for identity in found if identity not in wanted]
    wrong = [e for e in events if e.identity in wanted and wanted[e.identity] != (e.keys, e.payload)]
    verdict.lost, verdict.unexpected, verdict.wrong = len(lost), len(unexpected), len(wrong)
    verdict.duplicated = max(len(events) - len(found), len(events) - len({event.uuid for event in events}))
    verdict.problems += [f"lost: {identity}" for identity in lost[:3]]
    verdict.problems += [f"duplicated: {identity}" for identity, count in found.items() if count > 1][:3]
    verdict.problems += [f"never committed: {identity}" for identity in unexpected[:3]]
    verdict.problems += [f"wrong: {e.identity}: {e.payload}, not {wanted[e.identity][1]}" for e in wrong[:3]]
    if verdict.duplicated and not any(count > 1 for count in found.values()):
        verdict.problems.append("two mods have one uuid")
    misplaced = [*_out_of_order(files), *_in_another_minute(files)]
    split = _split(files)
    verdict.out_of_order, verdict.split = len(misplaced), len(split)
    verdict.problems += misplaced[:3] + split[:3]
    return verdict


def _out_of_order(files: list[EventFile]) -> Iterator[str]:
    """Yields what is not in commit order, in the files and lines of a table, or from epoch to epoch."""
    last: dict[str, Order] = {}
    for file in files:
        for event in file.events:
            if event.order <= last.get(file.folder, (0, "", 0, 0)):
                yield f"out of order: {event.identity} in {file.path}"
            last[file.folder] = event.order
    reached: Order = (0, "", 0, 0)
    for epoch in sorted({file.epoch for file in files}):
        orders = [event.order for file in files if file.epoch == epoch for event in file.events]
        if min(orders) <= reached:
            yield f"epoch {epoch} begins at {min(orders)}, and one before it has {reached}"
        reached = max(orders)


def _in_another_minute(files: list[EventFile]) -> Iterator[str]:
    for file in files:
        for event in file.events:
            if event.identity[0] // MINUTE != file.minute:
                yield f"in the file of another minute: {event.identity} in {file.path}"


def _split(files: list[EventFile]) -> list[str]:
    epochs: dict[str, set[int]] = {}
    for file in files:
        for event in file.events:
            epochs.setdefault(event.identity[1], set()).add(file.epoch)
    return [f"transaction {id_} is in epochs {sorted(found)}" for id_, found in epochs.items() if len(found) > 1]


def _event_file(root: Path, path: Path) -> EventFile:
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    folder, year, month, day, hour, minute, name = path.relative_to(root).parts
    *_, epoch, number = name.partition(".jsonl")[0].split("_")
    timestamp = parse(f"{year}-{month}-{day}T{hour}:{minute}:00Z")
    return EventFile(str(path), folder, int(epoch), int(number), timestamp // MINUTE, [_event(line) for line in lines])


def _event(line: bytes) -> Event:
    node = json.loads(line)
    metadata, payload = node["source_metadata"], node["payload"]
    at = parse(metadata["commit_timestamp"])
    assert parse(node["source_timestamp"]) == at == node["sort_keys"][1], "an event's timestamps differ"
    sequence, index = metadata["record_sequence"], metadata["mod_index"]
    identity = (at, metadata["server_transaction_id"], sequence, index, node["object"], metadata["mod_type"])
    keys = {name: payload[name] for name in metadata["primary_keys"]}
    return Event(identity, node["uuid"], _canonical(keys), _canonical(payload))


def _unified(change: Change, row: dict[str, Value] | object) -> str:
    assert isinstance(row, dict)
    columns = {column.name: column for column in change.columns}
    return _canonical({name: _value(columns[name], value) for name, value in row.items()})


def _value(column: ReportedColumn, value: Value) -> object:
    if isinstance(value, list):
        return [_scalar(column.code, item) for item in value]
    return _scalar(column.code, value)


def _scalar(code: str, value: Value) -> object:
    if value is None or code not in ("INT64", "JSON"):
        return value
    return int(str(value)) if code == "INT64" else json.loads(str(value))


def _canonical(node: object) -> str:
    return json.dumps(node, sort_keys=True)
