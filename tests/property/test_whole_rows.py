"""Updates that hold only what changed become the source's rows, with few reads and whatever else changed the row."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.records import DataChangeRecord, Mod
from connector.core.schemas import TableSchema
from connector.envelope.envelope import WHOLE_ROWS
from spark_sink.sinks.shared.completing.whole_rows import PARTIAL, Found, Read, applied, completed, decoded, kept
from tests.connector.builders import AT, record
from tests.property.bigquery_merging import KEYS, OTHERS, SCHEMA, enveloped
from tests.property.effort import effort

Row = dict[str, Any]
Key = tuple[str, str]


@dataclass
class Source:
    """A table of the source: its rows after each commit, and the records of a change stream that holds only changes."""

    random: Random
    capture: str
    rows: dict[Key, Row] = field(default_factory=dict)
    after: dict[int, dict[Key, Row]] = field(default_factory=dict)
    before: list[Row] = field(default_factory=list)
    wanted: list[Row] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    at: int = AT
    gone: dict[str, int] = field(default_factory=dict)

    def commit(self, keys: list[Key], capture: str = "") -> list[DataChangeRecord]:
        self.at += 1
        made = [self._changed(key, capture or self.capture) for key in keys]
        self.after[self.at] = {key: dict(row) for key, row in self.rows.items()}
        return made

    def _changed(self, key: Key, capture: str) -> DataChangeRecord:
        before = self.rows.get(key)
        mod_type = "INSERT" if before is None else self.random.choice(["UPDATE", "UPDATE", "UPDATE", "DELETE"])
        named = {column.name for column in OTHERS}
        if mod_type == "UPDATE":
            named = set(self.random.sample(sorted(named), self.random.randrange(1, 4)))
        new = {name: self.random.choice([None, f"{self.at} {name}"]) for name in sorted(named)}
        old = {name: (before or {}).get(name) for name in sorted(named)} if mod_type != "INSERT" else {}
        if mod_type == "DELETE":
            del self.rows[key]
            new = {}
        else:
            self.rows[key] = {**(before or {}), **new}
        keys = {"Region": key[0], "Id": key[1]}
        whole = {**keys, **self.rows[key]} if mod_type != "DELETE" else {}
        self.wanted.append(whole)
        self.before.append({**keys, **(before or {})})
        keeps_old = capture in ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
        if mod_type == "UPDATE" and capture in WHOLE_ROWS:
            new = self.rows[key]
        return record(
            commit_timestamp=self.at,
            server_transaction_id=f"t{self.at}",
            column_types=(*KEYS, *(column for column in OTHERS if column.name in named)),
            mods=(Mod(json.dumps(keys), json.dumps(new), json.dumps(old if keeps_old else {})),),
            mod_type=mod_type,
            value_capture_type=capture,
        )

    def read(self, read: Read) -> Found:
        """The rows as of a commit, as Spanner has them."""
        self.reads.append(read)
        rows = self.after[read.at]
        gone = {name for name, since in self.gone.items() if since <= read.at and name in read.columns}
        found = {}
        for text in read.keys:
            key = tuple(orjson.loads(text)[name] for name in read.key_columns)
            row = rows.get((key[1], key[0]))
            if row is not None:
                found[key] = decoded(json.dumps({name: row[name] for name in read.columns if name not in gone}))
        return Found(found, gone)


def epoch(source: Source, commits: list[list[Key]], existing: list[Key]) -> pa.RecordBatch:
    for key in existing:
        source.rows[key] = {column.name: f"0 {column.name}" for column in OTHERS}
    source.after[source.at] = dict(source.rows)
    return enveloped(*(one for keys in commits for one in source.commit(list(dict.fromkeys(keys)))))


KEY = st.tuples(st.sampled_from(["", "eu"]), st.sampled_from(["1", "2"]))
CAPTURES = ("NEW_ROW", "NEW_VALUES", "OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
COMMITS = st.lists(st.lists(KEY, min_size=1, max_size=3), min_size=1, max_size=8)


def schema_of(key: str) -> TableSchema:
    return SCHEMA


@effort(120)
@given(COMMITS, st.lists(KEY, unique=True), st.sampled_from(PARTIAL), st.integers(0, 2**32), st.booleans())
def test_each_update_of_an_epoch_becomes_the_row_as_of_its_commit(
    commits: list[list[Key]], existing: list[Key], capture: str, seed: int, at_own_commit: bool
) -> None:
    source = Source(Random(seed), capture)
    rows = epoch(source, commits, existing)
    whole = completed(rows, schema_of, source.read, at_own_commit=at_own_commit)
    assert not whole.incomplete
    assert whole.rows.drop_columns(["payload", "before", "source_metadata"]) == rows.drop_columns(
        ["payload", "before", "source_metadata"]
    )
    metadata = whole.rows.column("source_metadata").to_pylist()
    assert [row.pop("completed") for row in metadata] == [True] * rows.num_rows
    assert metadata == rows.column("source_metadata").to_pylist()
    for index, row in enumerate(metadata):
        if row["mod_type"] == "UPDATE":
            assert orjson.loads(whole.rows.column("payload")[index].as_py()) == source.wanted[index]
            if capture == "OLD_AND_NEW_VALUES":
                assert orjson.loads(whole.rows.column("before")[index].as_py()) == source.before[index]
        else:
            assert whole.rows.column("payload")[index] == rows.column("payload")[index]
    if capture == "OLD_AND_NEW_VALUES" and not at_own_commit:
        assert len(source.reads) <= 1, "old values say what was there before"
    assert len({read.at for read in source.reads}) == len(source.reads), "one read a timestamp"


@effort(120)
@given(COMMITS, st.lists(KEY, unique=True), st.sampled_from(CAPTURES), st.integers(0, 2**32), st.booleans())
def test_each_delete_of_an_epoch_has_the_row_that_it_removed(
    commits: list[list[Key]], existing: list[Key], capture: str, seed: int, at_own_commit: bool
) -> None:
    source = Source(Random(seed), capture)
    rows = epoch(source, commits, existing)
    whole = completed(rows, schema_of, source.read, at_own_commit=at_own_commit, deletes=True)
    assert not whole.incomplete
    metadata = whole.rows.column("source_metadata").to_pylist()
    assert all(row["completed"] for row in metadata)
    for index, row in enumerate(metadata):
        payload = orjson.loads(whole.rows.column("payload")[index].as_py())
        if row["mod_type"] == "DELETE":
            assert payload == orjson.loads(whole.rows.column("before")[index].as_py()) == source.before[index]
        else:
            assert payload == source.wanted[index]
    again = completed(rows, schema_of, source.read, at_own_commit=at_own_commit, deletes=True)
    changed = kept(again.rows, deletes=True)
    assert again.rows == whole.rows == (again if changed is None else applied(rows, changed)).rows
    if capture == "NEW_ROW" and not at_own_commit:
        assert len(source.reads) <= 2, "one read of each attempt: other rows follow from the changes before them"


@effort(60)
@given(COMMITS, st.lists(KEY, unique=True), st.sampled_from(CAPTURES), st.integers(0, 2**32))
def test_a_delete_whose_row_cannot_be_read_keeps_its_key_and_is_counted(
    commits: list[list[Key]], existing: list[Key], capture: str, seed: int
) -> None:
    source = Source(Random(seed), capture)
    rows = epoch(source, commits, existing)
    whole = completed(rows, schema_of, lambda read: Found(), deletes=True)
    said = [row["completed"] for row in whole.rows.column("source_metadata").to_pylist()]
    assert whole.incomplete.get("Singers", 0) == said.count(False)
    for index, row in enumerate(rows.column("source_metadata").to_pylist()):
        if row["mod_type"] == "DELETE":
            payload = orjson.loads(whole.rows.column("payload")[index].as_py())
            assert orjson.loads(rows.column("payload")[index].as_py()).items() <= payload.items()
            assert payload.items() <= source.before[index].items(), "no value is made up"
            assert said[index] == (payload == source.before[index])


def test_a_row_that_is_updated_and_deleted_in_one_commit_is_that_of_the_update() -> None:
    source = Source(Random(0), "NEW_ROW")
    row = dict.fromkeys(("Name", "Born", "Tags"), "0")
    source.after = {source.at: {("", "1"): row}, source.at + 1: {}}
    key = Mod('{"Region":"","Id":"1"}', json.dumps({**row, "Name": "n"}), "{}")
    at = {"commit_timestamp": source.at + 1, "column_types": (*KEYS, *OTHERS), "value_capture_type": "NEW_ROW"}
    update = record(**at, mods=(key,), mod_type="UPDATE")
    delete = record(**at, mods=(Mod(key.keys, "{}", "{}"),), mod_type="DELETE", record_sequence="00000001")
    for at_own_commit in (False, True):
        rows = enveloped(update, delete)
        whole = completed(rows, schema_of, source.read, at_own_commit=at_own_commit, deletes=True)
        assert orjson.loads(whole.rows.column("payload")[1].as_py())["Name"] == "n"
        assert not whole.incomplete


@effort(60)
@given(COMMITS, st.lists(KEY, unique=True), st.sampled_from(PARTIAL), st.integers(0, 2**32))
def test_what_cannot_be_read_stays_as_it_was_captured_and_is_counted(
    commits: list[list[Key]], existing: list[Key], capture: str, seed: int
) -> None:
    source = Source(Random(seed), capture)
    rows = epoch(source, commits, existing)
    whole = completed(rows, schema_of, lambda read: Found())
    said = [row["completed"] for row in whole.rows.column("source_metadata").to_pylist()]
    assert whole.incomplete.get("Singers", 0) == said.count(False)
    for index, is_complete in enumerate(said):
        payload = orjson.loads(whole.rows.column("payload")[index].as_py())
        captured = orjson.loads(rows.column("payload")[index].as_py())
        assert captured.items() <= payload.items()
        if source.wanted[index]:
            assert payload.items() <= source.wanted[index].items(), "no value is made up"
            assert is_complete == (payload == source.wanted[index])


def test_a_column_that_the_table_no_longer_has_is_not_missed() -> None:
    source = Source(Random(1), "NEW_VALUES", gone={"Tags": 0})
    rows = epoch(source, [[("", "1")]] * 6, [("", "1")])
    whole = completed(rows, schema_of, source.read)
    assert not whole.incomplete


@effort(40)
@given(COMMITS, st.lists(KEY, unique=True), st.sampled_from(PARTIAL), st.integers(0, 2**32), st.integers(1, 8))
def test_a_column_that_is_dropped_within_the_epoch_is_in_the_rows_before(
    commits: list[list[Key]], existing: list[Key], capture: str, seed: int, dropped_at: int
) -> None:
    source = Source(Random(seed), capture, gone={"Tags": AT + dropped_at})
    rows = epoch(source, commits, existing)
    whole = completed(rows, schema_of, source.read)
    assert not whole.incomplete
    for index, wanted in enumerate(source.wanted):
        if wanted:
            payload = orjson.loads(whole.rows.column("payload")[index].as_py())
            is_before = int(whole.rows.column("sort_keys")[index][1].as_py()) < AT + dropped_at
            kept = (
                wanted if is_before or "Tags" in payload else {name: wanted[name] for name in wanted if name != "Tags"}
            )
            assert payload == kept


@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_whole_rows_are_not_read(capture: str) -> None:
    source = Source(Random(2), capture)
    rows = epoch(source, [[("", "1")]] * 4, [("", "1")])
    whole = completed(rows, schema_of, source.read)
    assert (source.reads, dict(whole.incomplete)) == ([], {})
    assert whole.rows.column("payload") == rows.column("payload")


def test_the_reads_of_an_update_name_its_key_and_what_it_lacks() -> None:
    source = Source(Random(3), "NEW_VALUES")
    source.rows[("", "1")] = dict.fromkeys(("Name", "Born", "Tags"), "0")
    source.at += 1
    source.after[source.at] = {("", "1"): {"Name": "n", "Born": "0", "Tags": "0"}}
    update = record(
        commit_timestamp=source.at,
        column_types=(*KEYS, OTHERS[0]),
        mods=(Mod('{"Region":"","Id":"1"}', '{"Name":"n"}', "{}"),),
        mod_type="UPDATE",
        value_capture_type="NEW_VALUES",
    )
    completed(enveloped(update), schema_of, source.read)
    (read,) = source.reads
    assert read == Read("Singers", ("Born", "Tags"), ("Id", "Region"), ('{"Id":"1","Region":""}',), source.at)
