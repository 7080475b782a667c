"""Rows of tests that become dead letters."""

import pyarrow as pa

from connector.envelope.envelope import SCHEMA
from spark_sink.sinks.shared.dead_letters import DeadLetters

SECRET = "a value of a row"


def rows_of(*numbers: int, table: str = "Singers") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"object": table, "change_sequence_number": f"{number:016X}", "payload": f'{{"Id":"{number}"}}'}
            for number in numbers
        ],
        schema=SCHEMA,
    )


def put(letters: DeadLetters, name: str, *numbers: int, table: str = "Singers", reason: str = "too large") -> None:
    letters.put(table, name, rows_of(*numbers, table=table), [reason] * len(numbers))
