"""The tasks of a window write what the one-process reader writes of the same records."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.epoch import incomplete_transactions
from connector.core.filters import RecordFilter
from connector.core.records import DataChangeRecord, sequence_number
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import MINUTE
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from spark_sink.reading.windows import segments
from spark_sink.reading.windows.rows import ORDER, ROWS, RowMaker
from spark_sink.reading.windows.segments import WriterSetup, writer_of
from tests.connector.builders import AT, column, record
from tests.property.effort import effort
from tests.property.some_records import records as some_records
from tests.spark_sink.spools import SOURCE

# Sequences count the records of a transaction: those of more than 64 bits are only decoded, and never sorted.
records = some_records.filter(lambda one: one.mods and sequence_number(one.record_sequence) < 2**63 - 1)
LOW = AT - 1
HIGH = AT + 3 * MINUTE
EXCLUDED = "music.*"


def setup(path: str, **changed: Any) -> WriterSetup:
    whole = WriterSetup(
        spool=path,
        epoch=7,
        writer="w",
        source=(SOURCE.project, SOURCE.instance, SOURCE.database, SOURCE.change_stream, SOURCE.default_schema),
        stream_name=None,
        read_method="spanner-cdc",
        include=(),
        exclude=(EXCLUDED,),
        skip_transaction_tags=("loop=",),
        schemas=(),
        of_some_placements=False,
        has_repeats=False,
        declared={},
    )
    return WriterSetup(**{name: changed.get(name, getattr(whole, name)) for name in whole.__struct_fields__})


def shuffled(shares: list[list[DataChangeRecord]], slices: int, random: Random) -> list[pa.Table]:
    """Returns what Spark passes to the writers: a task for each slice, with sorted rows."""
    batches: list[pa.RecordBatch] = []
    for number, share in enumerate(shares):
        maker = RowMaker(number, LOW, HIGH, slices)
        rest = sorted(share, key=lambda one: one.commit_timestamp)
        while rest:
            some = random.randrange(1, len(rest) + 1)
            batches += maker.rows(Changes.of(rest[:some]))
            rest = rest[some:]
    random.shuffle(batches)
    rows = pa.Table.from_batches(batches, ROWS).to_pylist()
    rows.sort(key=lambda row: [(row[name] is not None, row[name] or type(row[name])()) for name in ORDER])
    tasks = [[row for row in rows if row["slice"] == number] for number in range(slices)]
    return [pa.Table.from_pylist(task, ROWS) for task in tasks if task]


def written(setup: WriterSetup, tasks: list[pa.Table], *, rows: int) -> dict[str, list[Any]]:
    """Runs a writer for each task; returns the texts of the results by kind, in the order of slices."""
    found: dict[str, list[Any]] = {"segment": [], "schemas": [], "incomplete": []}
    results = [
        row
        for task in tasks
        for batch in writer_of(setup)(iter(task.to_batches(max_chunksize=rows)))
        for row in batch.to_pylist()
    ]
    for row in sorted(results, key=lambda row: (row["slice"], row["part"])):
        found[row["kind"]].append(orjson.loads(row["text"]))
    return found


def events(path: str, found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    files = [SegmentFile.model_validate(one["file"]) for one in found["segment"]]
    return [row for file in files for batch in Spool.at(path).batches(file) for row in batch.to_pylist()]


def in_one_process(whole: list[DataChangeRecord]) -> tuple[list[dict[str, Any]], list[Any], SchemaRegistry]:
    """Returns the events, the incomplete transactions and the schemas as the one-process reader has them."""
    changes = Changes.of(whole).in_order()
    registry = SchemaRegistry()
    kept = RecordFilter((), (EXCLUDED,), ("loop=",))(changes)
    built = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc").build(kept, registry, 7)
    incomplete = [
        [one.server_transaction_id, one.commit_timestamp, one.expected, one.received]
        for one in incomplete_transactions(changes)
    ]
    return pa.Table.from_batches([built], SCHEMA).to_pylist(), incomplete, registry


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("spool")
    for name in ("segments", "manifests"):
        (folder / name).mkdir()
    return str(folder)


@effort(60)
@given(whole=st.lists(records, max_size=40), random=st.randoms(use_true_random=False), rows=st.sampled_from([1, 3, 50]))
def test_one_writer_writes_what_the_one_process_reader_writes(
    path: str, whole: list[DataChangeRecord], random: Random, rows: int
) -> None:
    unique = {(one.commit_timestamp, one.server_transaction_id, one.record_sequence): one for one in whole}
    shares: list[list[DataChangeRecord]] = [[], [], []]
    for one in unique.values():
        random.choice(shares).append(one)
    found = written(setup(path), shuffled(shares, 1, random), rows=rows)
    expected, incomplete, registry = in_one_process(list(unique.values()))
    assert events(path, found) == expected
    assert found["incomplete"] == incomplete
    assert [one["keys"] for one in found["schemas"]] == ([dict(registry.keys)] if registry.keys else [])


@effort(30)
@given(whole=st.lists(records, max_size=40), random=st.randoms(use_true_random=False), slices=st.integers(2, 9))
def test_several_writers_write_it_too_where_schemas_are_known(
    path: str, whole: list[DataChangeRecord], random: Random, slices: int
) -> None:
    columns = (column("Id", "INT64", 1, key=True), column("Name", "STRING", 2))
    unique = {
        (one.commit_timestamp, one.server_transaction_id, one.record_sequence): replace(one, column_types=columns)
        for one in whole
    }
    shares: list[list[DataChangeRecord]] = [[], [], []]
    for one in unique.values():
        random.choice(shares).append(one)
    expected, incomplete, registry = in_one_process(list(unique.values()))
    known = tuple(registry.schema(table).to_json().decode() for table in registry.keys)
    found = written(setup(path, schemas=known), shuffled(shares, slices, random), rows=7)
    assert events(path, found) == expected
    assert found["incomplete"] == incomplete
    assert found["schemas"] == []
    mods = sum(len(one.mods) for one in unique.values())
    assert sum(sum(one["tables"].values()) for one in found["segment"]) == len(expected) <= mods


def test_segments_end_between_commit_timestamps(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    whole = [record(commit_timestamp=AT + at // 3, record_sequence=f"{at:08d}") for at in range(30)]
    found = written(setup(path), shuffled([whole[::2], whole[1::2]], 1, Random(1)), rows=4)
    files = [one["file"] for one in found["segment"]]
    assert len(files) > 5
    assert all(a["last_commit_timestamp"] < b["first_commit_timestamp"] for a, b in pairwise(files))
    assert events(path, found) == in_one_process(whole)[0]


def test_a_new_key_of_several_columns_is_reported_for_its_order(path: str) -> None:
    columns = (column("A", "INT64", 1, key=True), column("B", "INT64", 2, key=True))
    tasks = shuffled([[record(column_types=columns)]], 1, Random(1))
    (changed,) = written(setup(path), tasks, rows=10)["schemas"]
    assert changed["unordered"] == {"Singers": ["A", "B"]}
    (changed,) = written(setup(path, declared={"Singers": ("B", "A")}), tasks, rows=10)["schemas"]
    assert changed["unordered"] == {}
    assert orjson.loads(changed["schemas"][0])["primary_keys"] == ["B", "A"]
