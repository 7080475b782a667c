"""``python -m benchmarks.capture``: records the sample in ``benchmarks/data`` from the official emulator.

The sample holds the messages of a real change stream, byte for byte, one file a dialect: those of the initial query and
of every partition, for eight transactions of one row and one of fifty, of a table of eleven columns whose value capture
type is NEW_ROW. The emulator itself is too slow for benchmarks: it returns some 9,000 records a second.
"""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random

import grpc
from google.cloud.spanner_v1 import types

from benchmarks.replay.sample import DATA, announced, prefixed
from connector.core.dialects import DIALECTS, IMMUTABLE, Dialect
from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, find_or_start

SINGLES, TOGETHER = 8, 50
"""Transactions of one row, and the rows of the last transaction."""

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_Session = types.Session.pb()
_SERVICE = "/google.spanner.v1.Spanner/"

_COLUMNS = (
    "OrderId", "CustomerId", "Status", "Amount", "Currency", "Quantity", "Paid", "Weight", "Note", "DeliveryDate",
    "UpdatedAt",
)  # fmt: skip
_DDL = {
    "googlesql": "CREATE TABLE Orders (OrderId INT64 NOT NULL, CustomerId INT64 NOT NULL, Status STRING(32),"
    " Amount NUMERIC, Currency STRING(3), Quantity INT64, Paid BOOL, Weight FLOAT64, Note STRING(MAX),"
    " DeliveryDate DATE, UpdatedAt TIMESTAMP) PRIMARY KEY (OrderId)",
    "postgresql": "CREATE TABLE Orders (OrderId bigint NOT NULL PRIMARY KEY, CustomerId bigint NOT NULL,"
    " Status varchar(32), Amount numeric, Currency varchar(3), Quantity bigint, Paid boolean,"
    " Weight double precision, Note text, DeliveryDate date, UpdatedAt timestamptz)",
}
_FIRST_KEY = 10**16
"""The first key; keys have as many digits as those that replace them in a replay."""


def _rows(count: int, first: int, random: Random) -> list[list[object]]:
    words = [
        "paid",
        "partly",
        "packed",
        "fragile",
        "gift",
        "urgent",
        "return",
        "customs",
        "insured",
        "collect",
        "signature",
        "express",
    ]
    return [
        [
            first + number,
            random.randrange(10**9, 10**10),
            random.choice(("PLACED", "PACKED", "SHIPPED", "DELIVERED")),
            Decimal(random.randrange(100, 10**7)) / 100,
            random.choice(("EUR", "USD", "JPY")),
            random.randrange(1, 100),
            random.random() < 0.5,
            random.randrange(10**6) / 1000,
            " ".join(random.choices(words, k=10)),
            date(2026, 1, 1) + timedelta(days=random.randrange(365)),
            datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(10**7)),
        ]
        for number in range(count)
    ]


class _RawClient:
    """Sends change stream queries and returns their messages as bytes."""

    def __init__(self, sample: SampleDatabase, dialect: Dialect, start: int, end: int) -> None:
        self._channel = grpc.insecure_channel(sample.host)
        self._sql = dialect.query(sample.change_stream, IMMUTABLE)
        self._names = dialect.parameters
        self._bounds = format_rfc3339(start), format_rfc3339(end)
        create = self._channel.unary_unary(f"{_SERVICE}CreateSession")
        request = _CreateSessionRequest(database=sample.path)
        self._session = _Session.FromString(create(request.SerializeToString())).name

    def query(self, token: str | None) -> Iterator[bytes]:
        request = _ExecuteSqlRequest(session=self._session, sql=self._sql)
        request.transaction.single_use.read_only.strong = True
        for name, value, code in zip(self._names, (*self._bounds, token, "1000"), (4, 4, 6, 2), strict=True):
            if value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = value
            request.param_types[name].code = code
        call: Iterator[bytes] = self._channel.unary_stream(f"{_SERVICE}ExecuteStreamingSql")(
            request.SerializeToString()
        )
        return call


def capture(host: str, dialect: Dialect) -> bytes:
    """Returns the messages of a new change stream of the emulator at ``host``, with gRPC's prefixes."""
    sample, random = SampleDatabase.create(host, dialect=dialect.name), Random(4)
    sample.run_ddl(_DDL[dialect.name])
    start = time.time_ns()
    for number in range(SINGLES):
        with sample.database.batch() as batch:
            batch.insert("Orders", _COLUMNS, _rows(1, _FIRST_KEY + number, random))
    with sample.database.batch() as batch:
        batch.insert("Orders", _COLUMNS, _rows(TOGETHER, _FIRST_KEY + SINGLES, random))
    client = _RawClient(sample, dialect, start, time.time_ns() + SECOND)
    initial = list(client.query(None))
    children = [message for token in announced(initial) for message in client.query(token)]
    sample.drop()
    return b"".join(prefixed(message) for message in initial + children)


def main() -> None:
    """Records the samples of both dialects."""
    with find_or_start() as emulator:
        for dialect in DIALECTS.values():
            (DATA / f"{dialect.name}.grpc").write_bytes(capture(emulator.host, dialect))


if __name__ == "__main__":
    main()
