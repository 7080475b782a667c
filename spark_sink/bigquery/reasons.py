"""Why BigQuery cannot hold a row, in the same words whichever way it takes; they name the column, never the value."""

import pyarrow as pa

from spark_sink.bigquery.table import Column

DECIMALS = {"NUMERIC": pa.decimal128(38, 9), "BIGNUMERIC": pa.decimal256(76, 38)}
"""What a number has to fit into; BIGNUMERIC's share of a 77th digit is not used."""


def no_key(column: Column) -> str:
    """A key's column has no value."""
    return f"the key column {column.name} is NULL or missing"


def too_fine_key(column: Column) -> str:
    """A key's timestamp would be cut, and might be another's then."""
    return (
        f"the key column {column.name} holds digits below a microsecond, which BigQuery's TIMESTAMP has not:"
        " set sink.timestamps: text, and take another sink.dataset, for a key's column keeps its type"
    )


def null_in_array(column: Column) -> str:
    """An array has no value for an element."""
    return (
        f"column {column.name} holds a NULL inside an array, which BigQuery's REPEATED columns cannot:"
        " set sink.arrays: json"
    )


def unfit_number(column: Column) -> str:
    """A number has more digits than its type, or is none."""
    return f"column {column.name} holds a number that BigQuery's {column.field.type} cannot"
