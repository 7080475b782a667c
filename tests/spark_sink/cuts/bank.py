"""A source of transfers between accounts in two tables: the sum of all balances is the same after each transaction."""

from pathlib import Path
from random import Random

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from tests.spark_sink.spools import KEY, SpoolMaker, record

TABLES = ("Checking", "Savings")
ACCOUNTS, BALANCE = 20, 1000
SUM = len(TABLES) * ACCOUNTS * BALANCE

_COLUMNS = (KEY, ColumnType("Balance", '{"code":"INT64"}', False, 2))


class Bank:
    """Two tables of accounts, and the spool with their changes.

    Args:
        folder: of the spool.
        random: decides on the transfers.

    Attributes:
        maker: of the spool.
        transactions: how many there were.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self.maker = SpoolMaker(folder)
        self.transactions = 0
        self._random = random
        self._balances = {table: dict.fromkeys(range(ACCOUNTS), BALANCE) for table in TABLES}
        self._next = ACCOUNTS
        self._at = self.maker.watermark + SECOND
        rows = [(table, key, "INSERT") for table in TABLES for key in range(ACCOUNTS)]
        self.maker.seal(*self._records(rows))

    def seal(self, transactions: int) -> int:
        """Seals an epoch of transactions, each of which changes one row of each table; returns its number."""
        return self.maker.seal(*(one for _ in range(transactions) for one in self._transaction()))

    def open_account(self, table: str) -> int:
        """Seals an epoch that changes one table alone: a new account, without money; returns its number."""
        self._at += SECOND // 100
        key, self._next = self._next, self._next + 1
        self._balances[table][key] = 0
        return self.maker.seal(*self._records([(table, key, "INSERT")]))

    def _transaction(self) -> list[DataChangeRecord]:
        source, target = self._random.sample(TABLES, 2)
        from_, to = self._balances[source], self._balances[target]
        key = self._random.choice(sorted(from_))
        kind = self._random.choice(["transfer", "open", "close"])
        amount = from_[key] if kind == "close" else self._random.randint(1, 100)
        other = self._next if kind == "open" else self._random.choice(sorted(to))
        is_new = other not in to
        self._next += is_new
        from_[key] -= amount
        to[other] = to.get(other, 0) + amount
        closes = kind == "close" and len(from_) > ACCOUNTS // 2
        changes = [(source, key, "DELETE" if closes else "UPDATE"), (target, other, "INSERT" if is_new else "UPDATE")]
        self._at += SECOND // 100
        self.transactions += 1
        found = self._records(changes)
        if closes:
            del from_[key]
        return found

    def _records(self, changes: list[tuple[str, int, str]]) -> list[DataChangeRecord]:
        return [
            record(
                self._at,
                [key],
                table=table,
                columns=_COLUMNS,
                values={"Balance": str(self._balances[table][key])},
                mod_type=mod_type,
                sequence=number,
            )
            for number, (table, key, mod_type) in enumerate(changes)
        ]
