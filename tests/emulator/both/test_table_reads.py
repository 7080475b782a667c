"""The official emulator and the scripted server serve rows of tables alike, and reject the same calls."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from connector.config import SourceConfig
from connector.core.dialects import GOOGLESQL, POSTGRESQL, Dialect
from connector.errors import SnapshotLostError, StreamError
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition
from tests.emulator.subjects import Subject

Pair = tuple[Subject, Subject]


def source_of(subject: Subject) -> SourceConfig:
    sample = subject.sample
    return SourceConfig(
        project=sample.project,
        instance=sample.instance,
        database=sample.database_id,
        change_stream=sample.change_stream,
        emulator_host=sample.host,
    )


def dialect_of(subject: Subject) -> Dialect:
    return GOOGLESQL if subject.sample.dialect == "googlesql" else POSTGRESQL


def opened(subject: Subject) -> Snapshot:
    return Snapshot.open(source_of(subject).address, subject.end)


@pytest.mark.emulator
def test_the_columns_of_every_table_are_described_alike(pair: Pair) -> None:
    for table in pair[0].sample.tables:
        query = TableQuery(table.name, tuple(column.name for column in table.columns))
        with opened(pair[0]) as official, opened(pair[1]) as scripted:
            columns = official.columns(query, dialect_of(pair[0]))
            assert columns == scripted.columns(query, dialect_of(pair[1]))
            assert len(columns) == len(table.columns)


def test_partitions_have_every_row_once_and_rows_are_found_by_key(subject: Subject) -> None:
    source = source_of(subject)
    for table in subject.sample.tables:
        names, key = tuple(column.name for column in table.columns), [column.name for column in table.key]
        with opened(subject) as snapshot:
            partitions = snapshot.partitions(TableQuery(table.name, names), dialect_of(subject))
        blocks = [block for one in partitions for block in read_partition(source.address, one)]
        rows = [text for block in blocks for text in block.payloads(names).to_pylist()]
        keys = [block.payloads(key) for block in blocks]
        assert len(set(rows)) == len(rows)
        again = [
            text
            for some in keys
            for block in read_keys(source.address, TableQuery(table.name, names), some, key, subject.end)
            for text in block.payloads(names).to_pylist()
        ]
        assert sorted(again) == sorted(rows)


@pytest.mark.parametrize(
    "broken",
    [
        lambda partition: replace(partition, session=f"{partition.session}0"),
        lambda partition: replace(partition, token=b"nonsense"),
    ],
    ids=["session", "token"],
)
def test_what_is_gone_is_a_lost_snapshot(subject: Subject, broken: Callable[..., object]) -> None:
    with opened(subject) as snapshot:
        first, *_ = snapshot.partitions(TableQuery("Order"), dialect_of(subject))
    with pytest.raises(SnapshotLostError):
        list(read_partition(source_of(subject).address, broken(first)))  # type: ignore[arg-type]


def test_missing_tables_and_columns_are_errors_of_one_line(subject: Subject) -> None:
    with opened(subject) as snapshot:
        for query in (TableQuery("Missing"), TableQuery("Order", ("Missing",))):
            with pytest.raises(StreamError, match=f"cannot read table {query.table} as of"):
                snapshot.partitions(query, dialect_of(subject))
