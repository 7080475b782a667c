"""Rows of a mutated structure: a short form of the campaign in :mod:`tests.property.decoding.fuzz_rows`.

python -m tests.property.decoding.fuzz_rows --rows 100000
"""

import msgspec
import pytest

from connector.spanner.decoding import postgresql_walk, row_fields
from tests.property.decoding.fuzz_rows import campaign
from tests.property.decoding.fuzzing.row_formats import row_formats

ROWS = 1000


@pytest.mark.long(but=1)
@pytest.mark.parametrize("decoder", row_formats())
def test_invalid_rows_are_rejected_and_both_decoders_agree_on_valid_ones(decoder: str) -> None:
    done = campaign(decoder, ROWS, seed=1)
    assert min(done.outcomes[outcome] for outcome in ("rejected", "walked", "columns")) > ROWS // 50, done.outcomes


@pytest.mark.parametrize(
    ("fields", "struct"),
    [
        (row_fields.DATA_CHANGE, postgresql_walk.PostgresqlData),
        (row_fields.COLUMN_TYPE, postgresql_walk.PostgresqlColumn),
        (row_fields.MOD, postgresql_walk.PostgresqlMod),
        (row_fields.HEARTBEAT, postgresql_walk.PostgresqlHeartbeat),
        (row_fields.CHILD_PARTITIONS, postgresql_walk.PostgresqlChildPartitions),
        (row_fields.CHILD_PARTITION, postgresql_walk.PostgresqlChild),
    ],
)
def test_both_dialects_have_the_same_fields_of_which_the_same_may_be_null(
    fields: tuple[row_fields.StructField, ...], struct: type[msgspec.Struct]
) -> None:
    found = msgspec.structs.fields(struct)
    assert {field.name for field in fields} == {field.name for field in found}
    # A msgspec.Raw is decoded later; a payload may be null then.
    nulls = {field.name for field in found if type(None) in getattr(field.type, "__args__", ())}
    raw = {field.name for field in found if field.type is msgspec.Raw} - {"type", "column_types"}
    assert nulls | raw == {field.name for field in fields if field.null}
