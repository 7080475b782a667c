"""Values are equal however they are written, as far as the destination can tell; digests tell rows apart."""

from decimal import Decimal

import pytest

from connector.config.replicas import Digest, ValuePrecision
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.proof.verify.digests import RowDigester, is_digested
from connector.proof.verify.rows import Columns
from connector.proof.verify.values import TableValues

BIGQUERY = ValuePrecision(timestamp=1000, null_array_is_empty=True)


def schema(*columns: tuple[str, str]) -> TableSchema:
    """A table whose first column is its key."""
    types = [
        ColumnType(name, type_json, is_primary_key=number == 1, ordinal_position=number)
        for number, (name, type_json) in enumerate(columns, 1)
    ]
    return TableSchema.of("T", types)


def of_type(code: str) -> str:
    return f'{{"code":"{code}"}}'


@pytest.mark.parametrize(
    ("code", "one", "other", "same"),
    [
        ("FLOAT32", 0.1, 0.10000000149011612, True),
        ("FLOAT64", 0.1, 0.10000000149011612, False),
        ("FLOAT32", 0.1, 0.2, False),
        ("FLOAT32", "NaN", "NaN", True),
        ("NUMERIC", "1.50", "1.5", True),
        ("NUMERIC", "1.5", "1.51", False),
        ("NUMERIC", "99999999999999999999999999999.999999999", "99999999999999999999999999999.999999998", False),
        ("TIMESTAMP", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", True),
        ("TIMESTAMP", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00Z", False),
        ("TIMESTAMP", None, "2026-01-01T00:00:00Z", False),
        ("STRING", "1.50", "1.5", False),
    ],
)
def test_a_value_is_the_same_in_each_of_its_texts(code: str, one: object, other: object, *, same: bool) -> None:
    values = TableValues(schema(("Id", of_type("INT64")), ("V", of_type(code))), ValuePrecision())
    assert values.equal("V", one, other) is same
    assert values.equal("V", other, one) is same


@pytest.mark.parametrize(
    ("code", "one", "other", "same"),
    [
        ("INT64", 9007199254740993, "9007199254740993", True),
        ("INT64", 9007199254740993, "9007199254740992", False),
        ("INT64", 5, Decimal("5.0"), True),
        ("STRING", "9007199254740993", "9007199254740993", True),
        ("JSON", [9007199254740993], ["9007199254740993"], True),
        ("JSON", [9007199254740993], ["9007199254740994"], False),
        ("JSON", [5], ["5"], False),
        ("JSON", Decimal("1.50"), "1.50", False),
        ("JSON", {"a": Decimal("0.1000000000000000000001")}, {"a": "0.1000000000000000000001"}, True),
        ("JSON", Decimal("1E+400"), "1e400", True),
        ("JSON", Decimal("1E+20"), Decimal("1E+20"), True),
        ("JSON", {"\ud800": "\udfff"}, {"\\ud800": "\\udfff"}, True),
        ("JSON", True, 1, False),
        ("FLOAT64", Decimal("0.1"), 0.1, True),
        ("FLOAT64", "NaN", None, False),
        ("TIMESTAMP", "2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456788Z", False),
    ],
)
def test_a_value_is_the_same_in_opencdc_where_a_text_stands_for_a_long_number(
    code: str, one: object, other: object, *, same: bool
) -> None:
    values = TableValues(schema(("Id", of_type("INT64")), ("V", of_type(code))), ValuePrecision(is_opencdc=True))
    assert values.equal("V", one, other) is same
    assert values.key({"Id": 2**53 + 1}) == values.key({"Id": str(2**53 + 1)})


def test_bigquerys_documents_have_doubles_and_integers_of_64_bits() -> None:
    table = schema(("Id", of_type("INT64")), ("J", of_type("JSON")))
    values = TableValues(table, ValuePrecision(json_has_doubles=True))
    assert values.equal("J", {"a": Decimal("0.1000000000000000000001")}, {"a": Decimal("0.1")})
    assert not values.equal("J", {"a": 2**63 + 1}, {"a": 2**63})
    assert not TableValues(table, ValuePrecision()).equal("J", Decimal("0.1000000000000000000001"), Decimal("0.1"))


def test_what_bigquery_cuts_is_no_difference_there() -> None:
    table = schema(("Id", of_type("TIMESTAMP")), ("A", '{"code":"ARRAY","array_element_type":{"code":"TIMESTAMP"}}'))
    exact, cut = TableValues(table, ValuePrecision()), TableValues(table, BIGQUERY)
    fine, coarse = ["2026-01-01T00:00:00.123456789Z"], ["2026-01-01T00:00:00.123456Z"]
    assert (exact.equal("A", fine, coarse), cut.equal("A", fine, coarse)) == (False, True)
    assert (exact.equal("A", None, []), cut.equal("A", None, [])) == (False, True)
    assert exact.key({"Id": "2026-01-01T00:00:00Z"}) == exact.key({"Id": "2026-01-01T00:00:00.000Z"})


def test_only_tables_whose_values_have_one_text_have_digests() -> None:
    key = ("Id", of_type("INT64"))
    assert is_digested(schema(key, ("V", of_type("TIMESTAMP"))))
    assert not is_digested(schema(key, ("V", of_type("FLOAT64"))))
    assert not is_digested(schema(key, ("V", '{"code":"ARRAY","array_element_type":{"code":"INT64"}}')))


def test_a_bucket_differs_if_a_row_or_a_column_moves_and_not_by_the_order_of_rows() -> None:
    table = schema(("Id", of_type("INT64")), ("A", of_type("STRING")), ("B", of_type("STRING")))

    def digests(*rows: Columns) -> RowDigester:
        digester = RowDigester(table, 1)
        for row in rows:
            digester.add(row)
        return digester

    def held(digester: RowDigester) -> dict[int, Digest]:
        return {number: Digest(*sums) for number, sums in digester._sums.items()}

    rows: list[Columns] = [{"Id": 1, "A": "x", "B": ""}, {"Id": 2, "A": None, "B": "x"}]
    expected = held(digests(*rows))
    assert digests(*reversed(rows)).differing(expected) == frozenset()
    for others in (
        [rows[0]],
        [rows[0], rows[0]],
        [rows[0], {"Id": 2, "A": "x", "B": None}],
        [{"Id": 1, "A": "", "B": "x"}, rows[1]],
        [{"Id": 1, "A": "x", "B": None}, rows[1]],
    ):
        assert digests(*others).differing(expected) == {0}
