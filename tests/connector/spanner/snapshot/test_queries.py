"""The statement of a table's rows quotes every name, and can be partitioned."""

import pytest

from connector.core.dialects import GOOGLESQL, POSTGRESQL
from connector.spanner.snapshot.queries import TableQuery


@pytest.mark.parametrize(
    ("query", "googlesql", "postgresql"),
    [
        (TableQuery("Order"), "SELECT * FROM `Order`", 'SELECT * FROM "Order"'),
        (
            TableQuery("sales.Invoices", ("Select", "b")),
            "SELECT `Select`, `b` FROM `sales`.`Invoices`",
            'SELECT "Select", "b" FROM "sales"."Invoices"',
        ),
        (
            TableQuery("T", ("a",), "a IS NULL"),
            "SELECT `a` FROM `T`@{FORCE_INDEX=_BASE_TABLE} WHERE a IS NULL",
            'SELECT "a" FROM "T" /*@ FORCE_INDEX=_BASE_TABLE */ WHERE a IS NULL',
        ),
        (TableQuery("T", ('a`\\"',)), 'SELECT `a\\`\\\\"` FROM `T`', 'SELECT "a`\\""" FROM "T"'),
    ],
)
def test_a_statement_quotes_names_as_its_dialect_does(query: TableQuery, googlesql: str, postgresql: str) -> None:
    assert query.sql(GOOGLESQL) == googlesql
    assert query.sql(POSTGRESQL) == postgresql
