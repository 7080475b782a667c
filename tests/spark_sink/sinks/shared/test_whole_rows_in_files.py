"""Files with whole rows: a replay writes the same bytes, also when Spanner no longer keeps what was read."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector.config import validated
from connector.config.address import DatabaseAddress
from connector.core.records import DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import FileDelivery
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.source import FileSinkSource, completion_of
from spark_sink.sinks.files.writer import FileWriter, destination_at
from spark_sink.sinks.shared.completing.epoch_rows import forget_completed
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.sinks.files.written import ALBUMS, AVRO, BY_MINUTE, avro_events, contents
from tests.spark_sink.spools import START, SpoolMaker, record

COMPLETION = Completion(DatabaseAddress("p", "in", "d"))
LINES = replace(BY_MINUTE, complete_rows=True)


def update(at: int, key: int, name: str, *, old: str = "") -> DataChangeRecord:
    """An UPDATE of a name, which is all that is captured."""
    made = record(at, [key], columns=ALBUMS[:2], mod_type="UPDATE")
    mod = Mod(f'{{"Id":"{key}"}}', json.dumps({"Name": name}), json.dumps({"Name": old}) if old else "{}")
    capture = "OLD_AND_NEW_VALUES" if old else "NEW_VALUES"
    return replace(made, mods=(mod,), value_capture_type=capture)


@pytest.fixture
def changed(spool: SpoolMaker) -> SpoolMaker:
    spool.seal(record(START + 1, [1, 2], columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    spool.seal(update(START + SECOND, 1, "a"), update(START + SECOND + 1, 2, "b", old="n"))
    return spool


def written(
    spool: SpoolMaker, root: Path, options: Any = LINES, letters: Path = Path("/nowhere")
) -> tuple[list[Path], dict[str, int]]:
    store = DeadLetters(str(letters))
    completion = completion_of(COMPLETION, options)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), options, store, completion)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=True)
    return [root / file.path for group in groups for file in writer.write(group)], dict(writer.incomplete)


def events(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from map(json.loads, path.read_text().splitlines())


def test_lines_hold_the_columns_that_did_not_change_and_say_so(
    changed: SpoolMaker, sold: dict[str, str], tmp_path: Path
) -> None:
    sold["1"] = "7"
    paths, incomplete = written(changed, tmp_path / "out")
    found = [(event["payload"], event["source_metadata"]["completed"]) for event in events(paths)]
    assert found == [
        ({"Id": 1, "Name": "n", "Sales": 1}, True),
        ({"Id": 2, "Name": "n", "Sales": 1}, True),
        ({"Id": 1, "Name": "a", "Sales": 7}, True),
        ({"Id": 2, "Name": "b"}, False),
    ]
    assert incomplete == {"Singers": 1}


def test_without_the_option_lines_are_what_they_were(changed: SpoolMaker, tmp_path: Path) -> None:
    store = DeadLetters("/nowhere")
    writer = FileWriter(changed.spool, changed.spool_id, destination_at(str(tmp_path / "out")), BY_MINUTE, store)
    groups = file_groups(changed.spool.manifests(1, changed.spool.latest()), by_minute=True)
    paths = [tmp_path / "out" / file.path for group in groups for file in writer.write(group)]
    assert all("completed" not in event["source_metadata"] for event in events(paths))


@pytest.mark.parametrize("form", ["jsonl", "avro", "opencdc-jsonl"])
def test_a_replay_writes_the_same_bytes_when_spanner_keeps_other_rows(
    changed: SpoolMaker, sold: dict[str, str], tmp_path: Path, form: str
) -> None:
    options = replace(LINES, format=form)
    sold["1"] = "7"
    written(changed, tmp_path / "one", options)
    sold.clear()
    sold["2"] = "8"
    _, incomplete = written(changed, tmp_path / "other", options)
    assert contents(tmp_path / "one") == contents(tmp_path / "other") != {}
    assert incomplete == {"Singers": 1}


def micro_batch(
    spool: SpoolMaker, root: Path, *, whole: bool, end: dict[str, object] | None = None
) -> dict[str, object]:
    """Runs the tasks of the first micro-batch, which is a repeated one if its end is given; returns its end."""
    sink = {"type": "files", "path": str(root), "dead_letters": f"{root}-letters", "rotate_interval": "0s"}
    source = {**SOURCE, "complete_rows": whole}
    config = validated({"source": source, "spool": {"path": spool.path}, "sink": sink})
    assert isinstance(config.sink, FilesConfig)
    delivery = FileDelivery(config, config.sink, Feed.of(config))
    reader = FileSinkSource(dict(delivery.options)).streamReader(None)
    start = reader.initialOffset()
    end = end or reader.latestOffset(start, reader.getDefaultReadLimit())
    assert all(list(reader.read(task)) for task in reader.partitions(start, end))
    assert reader._claim._held is not None
    reader._claim._held.close()
    return end


@pytest.mark.parametrize("whole", [True, False])
def test_a_micro_batch_that_is_repeated_after_the_option_was_changed_writes_the_same_bytes(
    spool: SpoolMaker, sold: dict[str, str], tmp_path: Path, whole: bool
) -> None:
    sold["1"] = "7"
    spool.seal(update(START + SECOND, 1, "a"), delete(START + SECOND + 1, 1))
    end = micro_batch(spool, tmp_path / "out", whole=whole)
    before = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    forget_completed(spool.spool, before=2)  # the first attempt may have ended before it had read the rows
    micro_batch(spool, tmp_path / "out", whole=not whole, end=end)
    assert contents(tmp_path / "out") == before != {}


def test_avro_files_have_the_field_in_their_schema(changed: SpoolMaker, sold: dict[str, str], tmp_path: Path) -> None:
    sold.update({"1": "7", "2": "8"})
    paths, _ = written(changed, tmp_path / "out", replace(AVRO, complete_rows=True))
    found = [event for path in paths for event in avro_events(path)]
    assert [event["source_metadata"]["completed"] for event in found] == [True] * 4
    assert [event["payload"]["Sales"] for event in found] == [1, 1, 7, 8]


def test_old_values_become_the_row_before_in_opencdc(changed: SpoolMaker, sold: dict[str, str], tmp_path: Path) -> None:
    sold.update({"1": "7", "2": "8"})
    paths, _ = written(changed, tmp_path / "out", replace(LINES, format="opencdc-jsonl"))
    last = list(events(paths))[-1]
    assert last["payload"] == {
        "before": {"Id": 2, "Name": "n", "Sales": 8},
        "after": {"Id": 2, "Name": "b", "Sales": 8},
    }
    assert last["metadata"]["spanner.completed"] == "true"


def delete(at: int, key: int) -> DataChangeRecord:
    """A DELETE that captures its key alone."""
    made = record(at, [key], columns=ALBUMS[:1], mod_type="DELETE")
    return replace(made, mods=(Mod(f'{{"Id":"{key}"}}', "{}", "{}"),), value_capture_type="NEW_ROW")


@pytest.mark.parametrize("form", ["jsonl", "avro", "opencdc-jsonl"])
def test_deletes_hold_the_rows_that_they_removed_and_a_replay_writes_the_same_bytes(
    spool: SpoolMaker, sold: dict[str, str], tmp_path: Path, form: str
) -> None:
    options = replace(LINES, format=form)
    spool.seal(record(START + 1, [1], columns=ALBUMS, values={"Name": "n", "Sales": "1"}), delete(START + 2, 1))
    spool.seal(delete(START + SECOND, 2))
    sold["2"] = "8"
    paths, incomplete = written(spool, tmp_path / "one", options)
    if form == "jsonl":
        found = [(event["payload"], event["source_metadata"]["completed"]) for event in events(paths)]
        assert found[1:] == [({"Id": 1, "Name": "n", "Sales": 1}, True), ({"Id": 2, "Sales": 8}, False)]
    if form == "opencdc-jsonl":
        before = {"Id": 1, "Name": "n", "Sales": 1}
        assert list(events(paths))[1]["payload"] == {"before": before, "after": None}
    assert incomplete == {"Singers": 1}
    sold.clear()
    written(spool, tmp_path / "other", options)
    assert contents(tmp_path / "one") == contents(tmp_path / "other") != {}


def test_deletes_of_files_that_an_older_program_started_stay_as_they_were_captured(
    spool: SpoolMaker, sold: dict[str, str], tmp_path: Path
) -> None:
    spool.seal(record(START + 1, [1], columns=ALBUMS, values={"Name": "n", "Sales": "1"}), delete(START + 2, 1))
    pinned = json.loads(LINES.to_text())
    del pinned["removed_rows"]
    paths, _ = written(spool, tmp_path / "out", FileOptions.from_text(json.dumps(pinned)))
    last = list(events(paths))[-1]
    assert (last["payload"], last["source_metadata"]["completed"]) == ({"Id": 1}, True)


def test_what_is_kept_of_delivered_epochs_is_deleted(changed: SpoolMaker, sold: dict[str, str], tmp_path: Path) -> None:
    written(changed, tmp_path / "out")
    storage = changed.spool.storage
    assert len(storage.list("completed")) == 1, "the first epoch has no updates"
    forget_completed(changed.spool, before=2)
    assert len(storage.list("completed")) == 1
    forget_completed(changed.spool, before=3)
    assert storage.list("completed") == []


def test_dead_letters_keep_whether_their_rows_are_complete(
    spool: SpoolMaker, sold: dict[str, str], tmp_path: Path
) -> None:
    spool.seal(update(START + SECOND, 1, "a"))
    spool.seal(record(START + 2 * SECOND, [2], columns=ALBUMS, values={"Name": "n", "Sales": "not a number"}))
    written(spool, tmp_path / "out", letters=tmp_path / "letters")
    store = DeadLetters(str(tmp_path / "letters"))
    (file,) = store.files()
    rows, _ = store.read(file)
    assert rows.column("source_metadata").to_pylist()[0]["completed"] is True
