"""The campaign would see it: what is lost, twice, foreign, changed, torn or out of order is told."""

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
    """The events of a scenario, in commit order, as far as they are compared."""
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
    """The events in files: one a table and minute, whose epoch is the number of the minute."""
    files: Lines = {}
    first = ORIGIN // MINUTE
    for event in events:
        keys = event["sort_keys"]
        assert isinstance(keys, list)
        at = int(keys[1])
        epoch, moment = at // MINUTE - first + 1, format_rfc3339(at)
        folder = f"{event['object']}/{moment[0:4]}/{moment[5:7]}/{moment[8:10]}/{moment[11:13]}/{moment[14:16]}"
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


def test_what_was_committed_is_good(tmp_path: Path) -> None:
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
    ("damage", "told"),
    [
        (lose, "lost"),
        (double, "twice"),
        (invent, "foreign"),
        (change, "wrong"),
        (swap, "out_of_order"),
        (swap_epochs, "out_of_order"),
        (tear, "torn"),
    ],
)
def test_damage_is_told(damage: Callable[[Lines], None], told: str, tmp_path: Path) -> None:
    files = by_minute(unified(SCENARIO))
    damage(files)
    verdict = judge(tmp_path, files)
    assert not verdict.good
    assert getattr(verdict, told) > 0
    assert verdict.problems
