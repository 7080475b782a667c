"""Reasons why BigQuery cannot hold a row, the same in every mode. They name the column, never the value. Pure."""

from spark_sink.sinks.bigquery.tables.table import TableColumn

WHOLE_AND_FRACTION = {"NUMERIC": (29, 9), "BIGNUMERIC": (38, 38)}
"""The digits before and after the point; BIGNUMERIC's partial 39th digit before it is not used."""

DIGITS = {
    name: rf"-?[0-9]{{1,{whole}}}(\.[0-9]{{1,{fraction}}})?" for name, (whole, fraction) in WHOLE_AND_FRACTION.items()
}
"""The patterns of the texts that fit these types. Arrow's conversion of a longer text may wrap around without error."""


def no_key(column: TableColumn) -> str:
    """For a key column without a value."""
    return f"the key column {column.name} is NULL or missing"


def too_fine_key(column: TableColumn) -> str:
    """For a key's timestamp that would be truncated, and might then equal another."""
    return (
        f"the key column {column.name} has digits below a microsecond, which BigQuery's TIMESTAMP cannot hold:"
        " set sink.timestamps: text, and another sink.dataset, because a key column keeps its type"
    )


def null_in_array(column: TableColumn) -> str:
    """For an array with a NULL element."""
    return (
        f"column {column.name} has a NULL inside an array, which BigQuery's REPEATED columns cannot hold:"
        " set sink.arrays: json"
    )


def unfit_number(column: TableColumn) -> str:
    """For a number with more digits than its type, or a text that is not a number."""
    return f"column {column.name} has a number that BigQuery's {column.field.type} cannot hold"
