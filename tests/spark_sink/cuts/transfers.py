"""Transfers between accounts in two tables, and readers that join their files: a wrong sum is half a transaction."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import orjson

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import MINUTE, SECOND
from spark_sink.sinks.files.complete_minutes import FOLDER, CompleteMinute
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

TOTAL = 1000
TABLES = ("Accounts", "Pockets")
_COLUMNS = (KEY, ColumnType("Balance", '{"code":"INT64"}', False, 2))
_ACCOUNTS = 5
_EPOCHS = 3


class Transfers:
    """Seals transactions that move money between an account and a pocket, which is inserted or deleted if need be."""

    def __init__(self, spool: SpoolMaker, random: Random) -> None:
        self._spool = spool
        self._random = random
        self._accounts = dict.fromkeys(range(_ACCOUNTS), 0)
        self._pockets: dict[int, int] = {}
        self.minutes = 0

    def minute(self) -> int:
        """Seals the epochs of the next minute; returns the last."""
        start, self.minutes = START + self.minutes * MINUTE, self.minutes + 1
        if self.minutes == 1:
            self._accounts[0] = TOTAL
            self._spool.seal(*(self._row(start + 1, "Accounts", key, "INSERT", key) for key in self._accounts))
        for epoch in range(_EPOCHS):
            at = start + (1 + epoch * 15) * SECOND
            self._spool.seal(*(one for step in range(4) for one in self._transfer(at + step * SECOND)))
        return self._spool.seal(high=start + MINUTE - 1)

    def _transfer(self, at: int) -> Iterator[DataChangeRecord]:
        account, pocket = self._random.randrange(_ACCOUNTS), self._random.randrange(20)
        if pocket in self._pockets and self._random.random() < 0.4:
            self._accounts[account] += self._pockets.pop(pocket)
            kind = "DELETE"
        else:
            amount = self._random.randint(1, 50)
            self._accounts[account] -= amount
            kind = "UPDATE" if pocket in self._pockets else "INSERT"
            self._pockets[pocket] = self._pockets.get(pocket, 0) + amount
        yield self._row(at, "Accounts", account, "UPDATE", 0)
        yield self._row(at, "Pockets", pocket, kind, 1)

    def _row(self, at: int, table: str, key: int, kind: str, sequence: int) -> DataChangeRecord:
        balance = (self._accounts if table == "Accounts" else self._pockets).get(key, 0)
        values: dict[str, object] = {"Balance": str(balance)}
        return record(at, [key], table=table, columns=_COLUMNS, values=values, mod_type=kind, sequence=sequence)


class Balances:
    """The rows of both tables, as the events in their files make them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}

    def read(self, root: Path, files: list[str]) -> None:
        """Applies the events of more files, in commit order."""
        lines = (line for file in files for line in (root / file).read_bytes().splitlines())
        for event in sorted(map(orjson.loads, lines), key=lambda event: event["sort_keys"][1:]):
            key = event["object"], event["payload"]["Id"]
            if event["source_metadata"]["is_deleted"]:
                self._rows.pop(key, None)
            else:
                self._rows[key] = event["payload"]["Balance"]

    @property
    def total(self) -> int:
        """Of all balances."""
        return sum(self._rows.values())


class CutReader:
    """Joins the tables as of each complete minute, in order."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._balances = Balances()
        self._at = START // MINUTE
        self.cuts = 0
        self.wrong: list[int] = []

    def read(self) -> None:
        """Reads the minutes that are complete by now."""
        while (path := self._root / CompleteMinute.path_of(self._at)).exists():
            document = CompleteMinute.model_validate_json(path.read_bytes())
            assert not [table for table in document.tables.values() if table.incomplete]
            self._balances.read(self._root, [file for files in document.files.values() for file in files])
            self.cuts += 1
            self._at += 1
            if self._balances.total != TOTAL:
                self.wrong.append(self._balances.total)


def total_without_cuts(root: Path) -> int:
    """The sum of what is there, as a reader finds it that knows no cuts."""
    balances = Balances()
    found = (path.relative_to(root) for path in root.rglob("*.jsonl") if not path.name.startswith("."))
    balances.read(root, [path.as_posix() for path in found if FOLDER not in path.parts])
    return balances.total
