"""Rows to compare, made of records."""

from collections.abc import Sequence

from connector.core.changes import Changes
from connector.core.records import DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.proof.audit.rows import ComparableRows
from tests.connector.builders import AT, record

_ENVELOPE = EnvelopeBuilder(Source("p", "i", "d", "s", "d"), stream_name=None, read_method="spanner-cdc")


def rows(records: Sequence[DataChangeRecord], *, epoch: int = 1) -> ComparableRows:
    """The records as the rows of an epoch; their order is kept, where timestamps do not contradict it."""
    if not records:
        return ComparableRows.none()
    return ComparableRows.of(_ENVELOPE.build(Changes.of(records), SchemaRegistry(), epoch))[0]


def transaction(
    name: str, *, at: int = 0, records: int = 1, mods: int = 2, table: str = "Singers"
) -> list[DataChangeRecord]:
    """The records of a transaction, committed ``at`` nanoseconds after the first."""
    return [
        record(
            commit_timestamp=AT + at,
            server_transaction_id=name,
            record_sequence=f"{sequence:08}",
            table_name=table,
            mods=tuple(mod(f"{sequence}{index}") for index in range(mods)),
            number_of_records_in_transaction=records,
        )
        for sequence in range(records)
    ]


def mod(key: str, *, name: str = '"a"', spaces: str = "") -> Mod:
    """A mod with that key; ``spaces`` are put between the members."""
    return Mod(f'{{"Id":"{key}"}}', f'{{"Name":{spaces}{name},"Age":{spaces}"7"}}', '{"Name":"b"}')
