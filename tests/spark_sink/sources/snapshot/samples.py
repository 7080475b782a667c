"""A sample database on the official emulator, with rows that are hard to filter."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from emulator import Emulator, SampleDatabase, Workload
from tests.integration.servers import databases

UNUSUAL = "An unusual \"key\" with 'quotes' and ``"
WHEN = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
NANOSECONDS = "2024-02-29T12:00:00.123456789Z"
COLUMNS = (
    "Id",
    "Int64Value",
    "StringValue",
    "TimestampValue",
    "DateValue",
    "BoolValue",
    "Float64Value",
    "Required",
    "NumericValue",
)
ROWS = [
    (UNUSUAL, 2**62, UNUSUAL, NANOSECONDS, "2024-02-29", True, float("nan"), 1, Decimal("3.14")),
    (
        "back\\slash",
        -(2**63),
        "back\\slash",
        "2024-02-29T12:00:00.123456Z",
        "2024-02-28",
        False,
        0.0,
        3,
        Decimal("-1.5"),
    ),
    ("later", 0, "", "2024-02-29T12:00:00.123457Z", "2000-01-01", False, -0.0, 4, Decimal(0)),
    ("zzz", None, None, None, None, None, None, 2, None),
]


def sample_databases(emulator: Emulator, dialect: str) -> Iterator[SampleDatabase]:
    """Creates a database with random rows and those above, and drops it afterwards."""
    make = databases(emulator)
    found = next(make)(dialect=dialect)
    Workload(found, seed=5, average_size=8.0).run(mods=200)
    with found.database.batch() as batch:
        batch.insert("AllTypes", COLUMNS, ROWS)
        batch.insert("sales.Invoices", ("InvoiceId", "Amount"), [(-(10**9), Decimal("1.5"))])
    yield found
    for _ in make:
        pass
