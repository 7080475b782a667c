"""Events in files of the sink, found and altered by hand."""

import json
from pathlib import Path

import orjson

from tests.connector.proof.verify.delivering import files

Event = dict[str, dict[str, object]]


def last_events(folder: Path) -> dict[tuple[str, str], tuple[Path, int, Event]]:
    """The last event of each row that still exists: its file, its line, and itself."""
    last: dict[tuple[str, str], tuple[list[object], Path, int, Event]] = {}
    for path in files(folder):
        for number, line in enumerate(path.read_bytes().splitlines()):
            event = orjson.loads(line)
            keys = [event["payload"][name] for name in sorted(event["source_metadata"]["primary_keys"])]
            row = event["object"], json.dumps(keys)
            _, at, sequence, index = event["sort_keys"]
            order = [at, int(sequence), index]
            if row not in last or last[row][0] < order:
                last[row] = order, path, number, event
    return {row: found[1:] for row, found in last.items() if not found[3]["source_metadata"]["is_deleted"]}


def rewritten(path: Path, number: int, event: Event | None) -> None:
    """Replaces a line of a file, or removes it."""
    lines = path.read_bytes().splitlines()
    lines[number : number + 1] = [] if event is None else [orjson.dumps(event)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
