"""The campaign's comparison reports mods that are lost, duplicated, unexpected, changed, split or out of order."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from emulator.scenario.scenario import Scenario
from tests.soak.truth import Verdict, committed, compare, event_files

ORIGIN = 1_790_000_000 * SECOND
SCENARIO = Scenario.generate(4, origin=ORIGIN, seconds=100, value_capture_type=None, transactions=40)

Event = dict[str, object]
Lines = dict[str, list[Event]]


def unified(scenario: Scenario) -> list[Event]:
    """Returns the events of a scenario in commit order, with the fields that are compared."""
    return [
        {
            "uuid": "/".join(map(str, identity)),
            "object": identity[4],
            "source_timestamp": format_rfc3339(identity[0]),
            "sort_keys": [identity[0] // 1_000_000, identity[0], identity[2], identity[3]],
            "source_metadata": {
                "commit_timestamp": format_rfc3339(identity[0]),
                "server_transaction_id": identity[1],
                "record_sequence": identity[2],
                "mod_index": identity[3],
                "mod_type": identity[5],
                "primary_keys": list(json.loads(keys)),
            },
            "payload": json.loads(payload),
        }
        for identity, (keys, payload) in committed(scenario).items()
    ]


def by_minute(events: list[Event]) -> Lines:
    """Returns the events by file: one for each table and minute; its epoch is the number of the minute."""
    files: Lines = {}
    first = ORIGIN // MINUTE
    for event in events:
        keys = event["sort_keys"]
        assert isinstance(keys, list)
        at = int(keys[1])
        epoch, timestamp = at // MINUTE - first + 1, format_rfc3339(at)
        day, clock = timestamp.split("T")
        folder = f"{event['object']}/{day.replace('-', '/')}/{clock[0:2]}/{clock[3:5]}"
        files.setdefault(f"{folder}/key_spanner-cdc_spool_{epoch}_0.jsonl", []).append(event)
    return files


def judge(root: Path, files: Lines) -> Verdict:
    for name, events in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return compare(committed(SCENARIO), event_files(root))


def longest(files: Lines) -> str:
    return max(files, key=lambda name: len(files[name]))


def test_the_committed_mods_are_good(tmp_path: Path) -> None:
    verdict = judge(tmp_path, by_minute(unified(SCENARIO)))
    assert verdict.good, verdict
    assert verdict.delivered == verdict.committed > 50


def lose(files: Lines) -> None:
    files[longest(files)].pop()


def double(files: Lines) -> None:
    files[longest(files)].append(files[longest(files)][-1])


def invent(files: Lines) -> None:
    events = files[longest(files)]
    metadata = events[-1]["source_metadata"]
    assert isinstance(metadata, dict)
    events.append({**events[-1], "uuid": "new", "source_metadata": {**metadata, "record_sequence": "99999999"}})


def change(files: Lines) -> None:
    event = files[longest(files)][0]
    assert isinstance(event["payload"], dict)
    event["payload"] = {**event["payload"], "Unheard": 1}


def swap(files: Lines) -> None:
    events = files[longest(files)]
    events[0], events[1] = events[1], events[0]


def swap_epochs(files: Lines) -> None:
    name = longest(files)
    files[name.replace("_spool_", "_spool_1000")] = files.pop(name)


def tear(files: Lines) -> None:
    for name, events in list(files.items()):
        for at in range(1, len(events)):
            before, after = (event["source_metadata"] for event in events[at - 1 : at + 1])
            assert isinstance(before, dict)
            assert isinstance(after, dict)
            if before["server_transaction_id"] == after["server_transaction_id"]:
                files[name.replace("_spool_", "_spool_1000")] = [events.pop(at)]
                return
    raise AssertionError("no transaction has two mods in a file")


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lose, "lost"),
        (double, "duplicated"),
        (invent, "unexpected"),
        (change, "wrong"),
        (swap, "out_of_order"),
        (swap_epochs, "out_of_order"),
        (tear, "split"),
    ],
)
def test_damage_is_reported(damage: Callable[[Lines], None], field: str, tmp_path: Path) -> None:
    files = by_minute(unified(SCENARIO))
    damage(files)
    verdict = judge(tmp_path, files)
    assert not verdict.good
    assert getattr(verdict, field) > 0
    assert verdict.problems
