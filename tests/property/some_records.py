"""Draws data change records with few different timestamps, transactions and tables, so that many are equal."""

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import MINUTE
from tests.connector.builders import AT, column

TABLES = ("Singers", "music.Albums", "Älben", "")
TRANSACTIONS = ("a", "b", "ä", "")
SEQUENCES = ("0", "1", "00000002", "10", "9", "٣", "", "a", "-1", str(2**63 - 1), str(2**63), str(2**70))
"""Numbers of any length, and texts that are not numbers."""

INSTANTS = tuple(AT + step for step in (0, 1, 2, 1000, 10**9, MINUTE, 2 * MINUTE))
COLUMNS = (
    column("Id", "INT64", 1, key=True),
    column("Ämter", "JSON", 2),
    column("Id2", "STRING", 3, key=True),
    ColumnType("Id", '{"code":"STRING"}', True, 1),
    ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 4),
)
PAYLOADS = (
    "{}", "{}", "{ }", '{"Id":"1"}', '{"Id" : "2"}', '{"Ä":"€🎸","n":null}', '{ "F": 1.50e0 }', '{\n"a":{}}',
    '{"a":"}{"}',
)  # fmt: skip


def _some(random: Random) -> DataChangeRecord:
    mods = [Mod(*random.choices(PAYLOADS, k=3)) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))]
    return DataChangeRecord(
        commit_timestamp=AT,
        record_sequence="1",
        server_transaction_id="a",
        is_last_record_in_transaction_in_partition=random.random() < 0.5,
        table_name=random.choice(TABLES),
        column_types=_different(random.sample(COLUMNS, random.randrange(4))),
        mods=tuple(mods),
        mod_type=random.choice(("INSERT", "UPDATE", "DELETE", "DELETE", "")),
        value_capture_type=random.choice(("NEW_ROW", "OLD_AND_NEW_VALUES")),
        number_of_records_in_transaction=random.choice((1, 1, 2, 3, 2**40)),
        number_of_partitions_in_transaction=random.randrange(1, 3),
        transaction_tag=random.choice(("", "app=x", "loop=y", "loop=z")),
        is_system_transaction=random.random() < 0.5,
        read_timestamp=random.choice(INSTANTS),
        size=random.randrange(1, 60),
    )


def _different(columns: list[ColumnType]) -> tuple[ColumnType, ...]:
    return tuple({one.name: one for one in columns}.values())


def _placed(one: DataChangeRecord, instant: int, transaction: str, sequence: str) -> DataChangeRecord:
    return replace(one, commit_timestamp=instant, server_transaction_id=transaction, record_sequence=sequence)


_RANDOM = Random(7)
instants = st.sampled_from(INSTANTS)
records = st.builds(
    _placed,
    st.sampled_from([_some(_RANDOM) for _ in range(300)]),
    instants,
    st.sampled_from(TRANSACTIONS),
    st.sampled_from(SEQUENCES),
)
