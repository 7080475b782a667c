"""The step at which a row became different: Spanner, its change stream, or the spool.

A row that the emulator skipped is no loss: its live queries never return a commit exactly on the end of a chop, which a
bounded re-read returns (`emulator.demo.skipped`).
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.reading import Spool
from emulator import SampleDatabase
from emulator.demo.plain_stream import identity
from emulator.demo.reread import rereader
from emulator.demo.skipped import MOST_SKIPPED
from tests.spark_sink.reading.backfill.campaign.tables import Key, Rows, key_columns

_TRACED = 50
_RE_READ_SECONDS = 900


def differing(expected: Rows, found: Rows) -> list[tuple[str, Key]]:
    """The tables and keys whose rows differ, in order."""
    return sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))


class Traces:
    """The ways of the changes of some rows.

    Attributes:
        skipped: the commits that the spool lacks and a bounded re-read returns, as RFC 3339.
    """

    def __init__(self, sample: SampleDatabase, folder: Path, wrong: Collection[tuple[str, Key]], end: str) -> None:
        spool = Spool.at(folder / "spool")
        reread = rereader(sample.host, sample.path, sample.change_stream, sample.dialect, seconds=_RE_READ_SECONDS)
        mods = {mod.identity for mod in reread(spool.header().start, parse(end))}
        self._by_key: dict[tuple[str, str], dict[str, list[Any]]] = {
            self._named(table, key): {"change stream": [], "spool": []} for table, key in wrong
        }
        sealed = set()
        for row in _rows(spool):
            metadata, payload = row["source_metadata"], json.loads(row["payload"])
            table = row["object"]
            keys = {name: payload[name] for name in key_columns(table)}
            one = identity(int(row["change_sequence_number"][:16], 16), table, metadata["mod_type"], keys)
            sealed.add(one)
            if (table, one[3]) in self._by_key:
                self._by_key[table, one[3]]["spool"].append([row["epoch"], row["change_sequence_number"], payload])
        for one in sorted(mods):
            if one[1:2] + one[3:] in self._by_key:
                lacking = "" if one in sealed else "the spool lacks it"
                self._by_key[one[1], one[3]]["change stream"].append([format_rfc3339(one[0]), one[2], lacking])
        missing = mods - sealed
        self.skipped = sorted({format_rfc3339(one[0]) for one in missing})
        self._of_missing = {(one[1], one[3]) for one in missing}
        self._wrong = wrong

    def are_skipped(self) -> bool:
        """True if the emulator has skipped changes of every row that differs, and few commits in all."""
        named = {self._named(table, key) for table, key in self._wrong}
        return len(self.skipped) <= MOST_SKIPPED and named <= self._of_missing

    def write(self, path: Path, expected: Rows, found: Rows) -> None:
        """Writes the ways of the first rows."""
        ways = [
            {
                "table": table,
                "key": key,
                "Spanner": expected.get((table, key)),
                "destination": found.get((table, key)),
                **self._by_key[self._named(table, key)],
            }
            for table, key in list(self._wrong)[:_TRACED]
        ]
        path.write_text(json.dumps(ways, indent=1))

    @staticmethod
    def _named(table: str, key: Key) -> tuple[str, str]:
        return table, identity(0, table, "", dict(zip(key_columns(table), key, strict=True)))[3]


def _rows(spool: Spool) -> Any:
    for manifest in spool.manifests(spool.floor(), spool.latest()):
        for file in manifest.files:
            for batch in spool.batches(file):
                yield from batch.to_pylist()
