"""A load whose sum never changes: transfers between the accounts of two tables, which the sink commits one by one."""

import itertools
from collections.abc import Iterator
from random import Random

from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from tests.spark_sink.sinks.bigquery.deliveries.histories import column
from tests.spark_sink.spools import START, SpoolMaker, record

TABLES = ("Checking", "Savings")
ACCOUNT = (column("Id", "INT64", 1, key=True), column("Balance", "INT64", 2))

_FIRST, _ACCOUNTS = 1000, 5


class Transfers:
    """Seals transactions that move money between two tables: updates, and accounts that are opened and closed."""

    def __init__(self, maker: SpoolMaker, random: Random) -> None:
        self._maker = maker
        self._random = random
        self._at = START
        self._numbers = itertools.count(_ACCOUNTS)
        self.balances = {table: dict.fromkeys(range(_ACCOUNTS), _FIRST) for table in TABLES}
        self.total = len(TABLES) * _ACCOUNTS * _FIRST
        at = self._tick()
        opened = [self._account(at, table, number, "INSERT") for table in TABLES for number in range(_ACCOUNTS)]
        self._maker.seal(*opened)

    def seal(self, transactions: int) -> int:
        """Seals an epoch; returns its number."""
        return self._maker.seal(*(one for _ in range(transactions) for one in self._transaction()))

    def _transaction(self) -> Iterator[DataChangeRecord]:
        """Takes money from an account of one table, and adds it to one of the other."""
        at = self._tick()
        giver, taker = self._random.sample(TABLES, 2)
        source = self._random.choice(list(self.balances[giver]))
        amount = self._random.randint(1, 50)
        if self._random.random() < 0.2 and len(self.balances[giver]) > 1:  # the account is closed
            amount = self.balances[giver].pop(source)
            yield self._account(at, giver, source, "DELETE")
        else:
            self.balances[giver][source] -= amount
            yield self._account(at, giver, source, "UPDATE")
        if self._random.random() < 0.2:
            target, kind = next(self._numbers), "INSERT"
        else:
            target, kind = self._random.choice(list(self.balances[taker])), "UPDATE"
        self.balances[taker][target] = self.balances[taker].get(target, 0) + amount
        yield self._account(at, taker, target, kind)

    def _tick(self) -> int:
        self._at += SECOND // 1000
        return self._at

    def _account(self, at: int, table: str, number: int, kind: str) -> DataChangeRecord:
        balance = self.balances[table].get(number, 0)
        values: dict[str, object] = {"Balance": str(balance)}
        return record(at, [number], table=table, columns=ACCOUNT, values=values, mod_type=kind)
