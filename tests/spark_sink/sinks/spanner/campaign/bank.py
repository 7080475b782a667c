"""A bank: every transaction moves money, so that a state in the middle of one has another total.

Writes of a kind to a table follow each other, so that they share a record: an emulator becomes slow with the records
that its change stream has.
"""

from collections.abc import Callable
from random import Random

from google.api_core.exceptions import Aborted
from google.cloud.spanner_v1.batch import Batch
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.keyset import KeySet

from tests.background_thread import BackgroundThread

TOTAL = 1_000_000
_SIZES = (1, 2, 10, 100, 500, 1000)
_PAUSE, _LONG_PAUSE = 0.5, 2.0
_POCKETS = 5

TABLES = {
    "Accounts": ("Id", "Balance", "Number"),
    "Pockets": ("Id", "Pocket", "Balance", "Number"),
    "Latest": ("Id", "Number"),
}

DDL = {
    "googlesql": [
        "CREATE TABLE Accounts (Id INT64 NOT NULL, Balance INT64 NOT NULL, Number INT64 NOT NULL) PRIMARY KEY (Id)",
        (
            "CREATE TABLE Pockets (Id INT64 NOT NULL, Pocket INT64 NOT NULL, Balance INT64 NOT NULL,"
            " Number INT64 NOT NULL) PRIMARY KEY (Id, Pocket), INTERLEAVE IN PARENT Accounts ON DELETE CASCADE"
        ),
        "CREATE TABLE Latest (Id INT64 NOT NULL, Number INT64 NOT NULL) PRIMARY KEY (Id)",
    ],
    "postgresql": [
        (
            'CREATE TABLE "Accounts" ("Id" bigint NOT NULL PRIMARY KEY, "Balance" bigint NOT NULL,'
            ' "Number" bigint NOT NULL)'
        ),
        (
            'CREATE TABLE "Pockets" ("Id" bigint NOT NULL, "Pocket" bigint NOT NULL, "Balance" bigint NOT NULL,'
            ' "Number" bigint NOT NULL, PRIMARY KEY ("Id", "Pocket")) INTERLEAVE IN PARENT "Accounts" ON DELETE CASCADE'
        ),
        'CREATE TABLE "Latest" ("Id" bigint NOT NULL PRIMARY KEY, "Number" bigint NOT NULL)',
    ],
}

PROOF = {
    "googlesql": "CREATE CHANGE STREAM Proof FOR Latest OPTIONS (value_capture_type = 'NEW_ROW')",
    "postgresql": 'CREATE CHANGE STREAM "Proof" FOR "Latest" WITH (value_capture_type = \'NEW_ROW\')',
}
"""A change stream of the destination, which reports every state that the row of `Latest` has had."""

Rows = dict[tuple[str, tuple[int, ...]], tuple[int, ...]]


class Bank(BackgroundThread):
    """Moves money in a thread, for as long as the context is open; its error is raised then.

    Args:
        database: has the tables.
        accounts: how many.
        mods: until there are so many, it is fast, and slow then.
        random: decides what is moved.

    Attributes:
        number: of the last transaction.
        mods: of all transactions, without those of cascades.
    """

    def __init__(self, database: Database, accounts: int, mods: int, random: Random) -> None:
        super().__init__()
        self._database = database
        self._wanted = mods
        self._random = random
        self._accounts = dict.fromkeys(range(accounts), 0)
        self._pockets: dict[tuple[int, int], int] = {}
        self._stored: dict[str, set[tuple[int, ...]]] = {"Accounts": set(), "Pockets": set()}
        self.number = 0
        self.mods = 0

    def open(self) -> None:
        """The first transaction: every account is there, and all money is in one of them."""
        self._accounts[0] = TOTAL
        self.number = 1
        with self._database.batch() as batch:
            rows = [(key, balance, 1) for key, balance in self._accounts.items()]
            batch.insert("Accounts", TABLES["Accounts"], rows)
            self._stored["Accounts"] = {(key,) for key in self._accounts}
            batch.insert("Latest", TABLES["Latest"], [(1, 1)])
        self.mods = len(self._accounts) + 1

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE if self.mods < self._wanted else _LONG_PAUSE):
            self._transact()

    def _commit(self, write: Callable[[Batch], None]) -> None:
        """Commits, as often as it takes: an emulator under load aborts for minutes."""
        while True:
            try:
                with self._database.batch() as batch:
                    write(batch)
            except Aborted:
                if self._stop.wait(1):
                    raise
            else:
                return

    def _transact(self) -> None:
        number, random = self.number + 1, self._random
        accounts: set[int] = set()
        written: set[tuple[int, int]] = set()
        emptied: set[tuple[int, int]] = set()
        closed = self._close() if random.random() < 0.05 else None
        for _ in range(random.choice(_SIZES)):
            account = random.choice([key for key in random.sample(range(len(self._accounts)), 3) if key != closed])
            pocket = (account, random.randrange(_POCKETS))
            accounts.add(account)
            if pocket in self._pockets and random.random() < 0.3:
                self._accounts[account] += self._pockets.pop(pocket)
                written.discard(pocket)
                emptied.add(pocket)
                continue
            amount = random.randint(-100, 100)
            self._accounts[account] -= amount
            self._pockets[pocket] = self._pockets.get(pocket, 0) + amount
            written.add(pocket)
        if closed is not None:
            accounts.add(self._heir(closed))

        gone = (emptied - written) & self._stored["Pockets"]
        rows: dict[str, list[tuple[int, ...]]] = {
            "Accounts": [(key, self._accounts[key], number) for key in sorted(accounts)],
            "Pockets": [(*key, self._pockets[key], number) for key in sorted(written)],
        }
        if closed is not None:
            self._forget(closed)

        def write(batch: Batch) -> None:
            if closed is not None:
                batch.delete("Accounts", KeySet(keys=[(closed,)]))
            if gone:
                batch.delete("Pockets", KeySet(keys=sorted(gone)))
            for table, values in rows.items():
                keys = 2 if table == "Pockets" else 1
                stored = self._stored[table]
                if new := [row for row in values if row[:keys] not in stored]:
                    batch.insert(table, TABLES[table], new)
                if old := [row for row in values if row[:keys] in stored]:
                    batch.update(table, TABLES[table], old)
            batch.update("Latest", TABLES["Latest"], [(1, number)])

        self._commit(write)
        self._stored["Accounts"] |= {row[:1] for row in rows["Accounts"]}
        self._stored["Pockets"] -= gone
        self._stored["Pockets"] |= {row[:2] for row in rows["Pockets"]}
        self.number = number
        self.mods += len(accounts) + len(written | emptied) + 1 + (closed is not None)

    def _close(self) -> int:
        """Closes an account, with its pockets, by the cascade; it is opened again when it is written next."""
        closed = self._random.randrange(len(self._accounts))
        left = self._accounts[closed]
        for key in [key for key in self._pockets if key[0] == closed]:
            left += self._pockets.pop(key)
        self._accounts[closed] = 0
        self._accounts[self._heir(closed)] += left
        return closed

    def _forget(self, closed: int) -> None:
        """Forgets the rows that a cascade deletes."""
        self._stored["Accounts"].discard((closed,))
        self._stored["Pockets"] = {key for key in self._stored["Pockets"] if key[0] != closed}

    def _heir(self, closed: int) -> int:
        return (closed + 1) % len(self._accounts)


def rows_of(database: Database) -> Rows:
    """Every row of the bank."""
    found: Rows = {}
    with database.snapshot(multi_use=True) as snapshot:
        for table, columns in TABLES.items():
            keys = 2 if table == "Pockets" else 1
            for row in snapshot.read(table, columns, KeySet(all_=True)):
                found[table, tuple(row[:keys])] = tuple(row[keys:])
    return found


class Observer(BackgroundThread):
    """Looks at the destination all the time, in a thread, for as long as the context is open.

    Args:
        database: the destination.
        dialect: its dialect.
        counts: whether what is seen from now on counts.

    Attributes:
        looks: at states with money in them.
        halves: what was seen of states in the middle of a transaction.
        back: numbers that were followed by smaller ones.
    """

    def __init__(self, database: Database, dialect: str, counts: Callable[[], bool]) -> None:
        super().__init__()
        self._database = database
        self._counts = counts
        quote = "`" if dialect == "googlesql" else '"'

        def of(table: str, aggregate: str) -> str:
            return f"(SELECT {aggregate} FROM {quote}{table}{quote})"

        balance, number = (
            f"{name}({quote}{column}{quote})" for name, column in (("SUM", "Balance"), ("MAX", "Number"))
        )
        selected = [of("Accounts", balance), of("Pockets", balance), of("Latest", number), of("Accounts", number)]
        self._sql = f"SELECT {', '.join(selected)}"
        self.looks = 0
        self.numbers: set[int] = set()
        self.halves: list[str] = []
        self.back: list[tuple[int, int]] = []

    def _run(self) -> None:
        last = 0
        while not self._counts():
            if self._stop.wait(0.1):
                return
        while not self._stop.wait(0.1):
            with self._database.snapshot() as snapshot:
                ((accounts, pockets, number, newest),) = snapshot.execute_sql(self._sql)
            if accounts is None and number is None:
                continue
            self.looks += 1
            total = (accounts or 0) + (pockets or 0)
            if total != TOTAL or number is None or (newest or 0) > number:
                self.halves.append(f"total {total}, transaction {number}, an account of transaction {newest}")
            if number is not None:
                if number < last:
                    self.back.append((last, number))
                last = number
                self.numbers.add(number)
