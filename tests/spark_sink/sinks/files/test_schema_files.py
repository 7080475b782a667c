"""The files of Avro schemas beside those of events."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from connector.core.records import ColumnType
from connector.core.timestamps import MINUTE
from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import LocalFile
from spark_sink.errors import SinkError
from spark_sink.sinks.files.plan import file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.spark_sink.sinks.files.written import ALBUMS, AVRO, BY_MINUTE, contents, written
from tests.spark_sink.spools import NO_DEAD_LETTERS, SINGERS, START, SpoolMaker, record


@pytest.mark.parametrize("written_as", ["jsonl", "avro"])
def test_each_schema_has_a_file_where_that_is_asked_for(spool: SpoolMaker, tmp_path: Path, written_as: str) -> None:
    spool.seal(record(START + 5, [1]))
    spool.seal(record(START + 6, [1], columns=ALBUMS, values={"Sales": "2"}), record(START + 7, [1], table="music.B"))
    spool.seal(record(START + MINUTE, [2], columns=ALBUMS))
    without = written(spool, tmp_path / "without", replace(BY_MINUTE, format=written_as))
    assert written(spool, tmp_path / "out", replace(BY_MINUTE, format=written_as, schema_files=True)) == without
    described = {path: data for path, data in contents(tmp_path / "out").items() if path.endswith(".avsc")}
    folders_and_keys = {(file.path.split("/")[0], file.path.split("/")[-1].split("_")[0]) for file in without}
    assert set(described) == {f"{folder}/{key}.avsc" for folder, key in folders_and_keys}
    assert len(described) == 3
    for file in without:
        if written_as == "avro":
            with (tmp_path / "out" / file.path).open("rb") as opened:
                schema = fastavro.reader(opened).metadata["avro.schema"]
            assert (
                described[f"{file.path.split('/')[0]}/{file.path.split('/')[-1].split('_')[0]}.avsc"] == schema.encode()
            )


class Meanwhile(LocalStore):
    """While its first schema's file is being written, another task writes it too."""

    def __init__(self, root: Path, other: Callable[[], object]) -> None:
        super().__init__(root, failure=SinkError, option="sink.path")
        self._other: Callable[[], object] | None = other

    def begin(self, path: str) -> LocalFile:
        file = super().begin(path)
        self._meet(path)
        return file

    def put(self, path: str, data: bytes) -> None:
        self._meet(path)
        super().put(path, data)

    def _meet(self, path: str) -> None:
        if self._other is not None and path.endswith(".avsc"):
            other, self._other = self._other, None
            other()


def test_two_tasks_may_write_one_schemas_file(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    shape = replace(BY_MINUTE, schema_files=True)
    first, second = file_groups(spool.spool.manifests(1, 2), by_minute=True)

    def other() -> None:
        list(
            FileWriter(
                spool.spool, spool.spool_id, destination_at(str(tmp_path / "out")), shape, NO_DEAD_LETTERS
            ).write(second)
        )

    destination = Meanwhile(tmp_path / "out", other)
    assert list(FileWriter(spool.spool, spool.spool_id, destination, shape, NO_DEAD_LETTERS).write(first))
    written(spool, tmp_path / "expected", shape)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    assert len(contents(tmp_path / "out")) == 3


def test_a_shared_file_is_put_however_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination, publish = destination_at(str(tmp_path)), LocalFile.publish

    def overtaken(self: LocalFile) -> None:
        monkeypatch.setattr(LocalFile, "publish", publish)
        destination.put("T/k.avsc", b"schema")  # which takes the other's temporary file for a leftover
        publish(self)

    monkeypatch.setattr(LocalFile, "publish", overtaken)
    destination.put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}


def test_what_a_killed_writer_left_of_a_shared_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "T").mkdir()
    (tmp_path / "T/.k.avsc.0a1b2c3d.tmp").write_bytes(b"half")
    (tmp_path / "T/k.avsc").write_bytes(b"an older program's")
    destination_at(str(tmp_path)).put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}
    (tmp_path / "T/.k.avsc.0a1b2c3d.tmp").write_bytes(b"half")
    destination_at(str(tmp_path)).put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}


def test_schemas_whose_timestamps_are_text_have_a_name_of_their_own(spool: SpoolMaker, tmp_path: Path) -> None:
    when = ColumnType("At", '{"code":"TIMESTAMP"}', False, 3)
    spool.seal(record(START, [1], columns=(*SINGERS, when)))
    for timestamps in ("micros", "text"):
        written(spool, tmp_path / "out", replace(AVRO, schema_files=True, timestamps=timestamps))
    key = spool.spool.manifest(1).schema_keys["Singers"]
    described = {path: data for path, data in contents(tmp_path / "out").items() if path.endswith(".avsc")}
    assert set(described) == {f"d_Singers/{key}.avsc", f"d_Singers/{key}_text.avsc"}
    assert b"timestamp-micros" in described[f"d_Singers/{key}.avsc"]
    assert b"timestamp-micros" not in described[f"d_Singers/{key}_text.avsc"]
