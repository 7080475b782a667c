"""Files of events read back, without Spark."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.core.records import ColumnType
from connector.core.timestamps import parse
from connector.envelope.envelope import SCHEMA
from spark_sink.errors import EventFileError
from spark_sink.sources.files import table_rows as event_rows
from spark_sink.sources.files.files import files_below, read_file
from tests.cloud_storage import CloudStorage
from tests.spark_sink.sinks.files.written import written_as
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

VALUES: dict[str, tuple[str, list[object]]] = {
    "Bool": ('{"code":"BOOL"}', [True, False]),
    "Long": ('{"code":"INT64"}', [str(2**63 - 1), str(-(2**63)), "0"]),
    "Double": ('{"code":"FLOAT64"}', [1.5, -0.0, 5e-324, "NaN", "Infinity", "-Infinity"]),
    "Float": ('{"code":"FLOAT32"}', [3.140000104904175, "NaN"]),
    "Numeric": ('{"code":"NUMERIC"}', ["0", "-1.1", "100", "99999999999999999999999999999.999999999", "-0.000000001"]),
    "PgNumeric": ('{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', ["NaN", "1.10", "9" * 100]),
    "Text": ('{"code":"STRING"}', ["", "null", 'é"\\\n\U0001f600', "[1]"]),
    "Bytes": ('{"code":"BYTES"}', ["", "AAEC"]),
    "Date": ('{"code":"DATE"}', ["0001-01-01", "9999-12-31"]),
    "Time": ('{"code":"TIMESTAMP"}', ["0001-01-01T00:00:00Z", "2026-01-02T03:04:05.123456Z", "9999-12-31T23:59:59Z"]),
    "Json": ('{"code":"JSON"}', ['{"a":[1,null,"b"]}', '"text"', "12345678901234567890"]),
    "Longs": ('{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', [["1", None], []]),
    "Texts": ('{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', [["a", None, "null"]]),
    "Jsons": ('{"array_element_type":{"code":"JSON"},"code":"ARRAY"}', [['{"a":1}', None]]),
    "Uuid": ('{"code":"UUID"}', ["00000000-0000-4000-8000-000000000000"]),
}
COLUMNS = (KEY, *(ColumnType(name, kind, False, n) for n, (name, (kind, _)) in enumerate(VALUES.items(), 2)))


def rows(files: list[str]) -> list[dict[str, Any]]:
    return [row for file in files for batch in read_file(file) for row in batch.to_pylist()]


@pytest.fixture
def filled(spool: SpoolMaker) -> SpoolMaker:
    """A row of each value of each type, and one of nulls."""
    most = max(len(values) for _, values in VALUES.values())
    records = [
        record(
            START + number,
            [number],
            columns=COLUMNS,
            values={name: values[number % len(values)] for name, (_, values) in VALUES.items()},
            mod_type="UPDATE" if number else "INSERT",
        )
        for number in range(most)
    ]
    spool.seal(*records, record(START + most, [most], columns=COLUMNS, values=dict.fromkeys(VALUES)))
    return spool


def test_avro_and_json_lines_give_the_same_events(filled: SpoolMaker, tmp_path: Path) -> None:
    lines, avro = (rows(written_as(filled, tmp_path, form)) for form in ("jsonl", "avro"))
    assert len(lines) == 7
    for one, other in zip(lines, avro, strict=True):
        payload, same = json.loads(one.pop("payload")), json.loads(other.pop("payload"))
        for each in (payload, same):
            each["Time"] = each["Time"] and parse(each["Time"])
        assert payload == same
        assert one == other


def test_timestamps_that_avro_has_as_text_keep_their_digits(spool: SpoolMaker, tmp_path: Path) -> None:
    columns = (KEY, ColumnType("Time", '{"code":"TIMESTAMP"}', False, 2))
    spool.seal(record(START + 1, columns=columns, values={"Time": "2026-01-02T03:04:05.123456789Z"}))
    (row,) = rows(written_as(spool, tmp_path, "avro", timestamps="text"))
    assert json.loads(row["payload"]) == {"Id": 1, "Time": "2026-01-02T03:04:05.123456789Z"}


def test_what_was_not_captured_is_null_out_of_avro(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 1, [1], mod_type="DELETE", values={}))
    assert [row["payload"] for row in rows(written_as(spool, tmp_path, "jsonl"))] == ['{"Id":1}']
    assert [row["payload"] for row in rows(written_as(spool, tmp_path, "avro"))] == ['{"Id":1,"Name":null}']


@pytest.mark.parametrize("form", ["jsonl", "avro"])
def test_a_large_file_comes_in_batches_of_bounded_size(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(event_rows, "_BATCH_ROWS", 100)
    spool.seal(record(START + 1, range(1000)))
    (file,) = written_as(spool, tmp_path, form)
    batches = list(read_file(file))
    assert [batch.num_rows for batch in batches] == [100] * 10
    assert all(batch.schema.equals(SCHEMA) for batch in batches)
    monkeypatch.setattr(event_rows, "_BATCH_BYTES", 200)
    assert sum(batch.num_rows for batch in read_file(file)) == 1000
    assert next(read_file(file)).num_rows < 20


def damaged(data: bytes) -> Iterator[bytes]:
    step = max(1, len(data) // 60)
    for at in range(0, len(data), step):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(("form", "compressed"), [("jsonl", False), ("jsonl", True), ("avro", False), ("avro", True)])
def test_a_damaged_file_is_read_or_refused_in_one_line_that_holds_no_value(
    filled: SpoolMaker, tmp_path: Path, form: str, compressed: bool
) -> None:
    (path,) = map(Path, written_as(filled, tmp_path, form, compressed=compressed))
    file = str(path)
    refused = 0
    for data in damaged(path.read_bytes()):
        path.write_bytes(data)
        try:
            assert all(isinstance(batch, pa.RecordBatch) for batch in read_file(file))
        except EventFileError as error:
            assert str(error).startswith(f"cannot read {file}: ")  # noqa: PT017
            assert len(str(error).removeprefix(f"cannot read {file}: ")) < 80  # noqa: PT017
            refused += 1
    assert refused > 20


def test_avro_without_fastavro_says_what_to_install(
    filled: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = written_as(filled, tmp_path, "avro")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(EventFileError, match=r"needs the package fastavro\. pip install 'spanner-cdc-spark"):
        list(read_file(file))


def test_a_folder_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", scandir)
    with pytest.raises(EventFileError, match=f"cannot read {tmp_path}: Permission denied"):
        files_below(str(tmp_path))


def test_files_come_in_the_order_of_their_paths(filled: SpoolMaker, tmp_path: Path) -> None:
    filled.seal(record(START + 70 * 10**9, [1], table="A"), record(START + 71 * 10**9, [1]))
    files = written_as(filled, tmp_path, "jsonl") + written_as(filled, tmp_path, "avro")
    assert [file.path for file in files_below(str(tmp_path))] == sorted(files)
    assert len(files) == 6


def in_cloud(cloud_storage: CloudStorage, bucket: str, files: list[str], root: Path) -> list[str]:
    """Uploads the files, and other objects beside them; returns the files' URLs."""
    urls = [f"{bucket}/a/{Path(file).relative_to(root)}" for file in files]
    for url, file in zip(urls, files, strict=True):
        cloud_storage.put(url, Path(file).read_bytes())
        cloud_storage.put(f"{url.rpartition('/')[0]}/", b"")
    for name in ("a/.hidden/x.jsonl", "a/_SUCCESS", "ab/other.jsonl"):
        cloud_storage.put(f"{bucket}/{name}", b"x")
    return urls


def test_one_file_is_found_by_its_own_path(filled: SpoolMaker, tmp_path: Path) -> None:
    (file,) = written_as(filled, tmp_path, "jsonl")
    assert [found.path for found in files_below(file)] == [file]
    assert [found.bytes for found in files_below(file)] == [Path(file).stat().st_size]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_files_in_cloud_storage_are_found_and_read_like_those_on_disk(
    filled: SpoolMaker, tmp_path: Path, cloud_storage: CloudStorage, bucket: str
) -> None:
    filled.seal(record(START + 70 * 10**9, [1], table="odd/näme"))
    files = [*written_as(filled, tmp_path, "jsonl", compressed=True), *written_as(filled, tmp_path, "avro")]
    urls = in_cloud(cloud_storage, bucket, files, tmp_path)
    found = files_below(f"{bucket}/a")
    assert [file.path for file in found] == sorted(urls)
    assert [file.bytes for file in found] == [Path(files[urls.index(file.path)]).stat().st_size for file in found]
    assert rows(urls) == rows(files)
    assert files_below(urls[0]) == [file for file in found if file.path == urls[0]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_not_in_cloud_storage_is_one_line(cloud_storage: CloudStorage, bucket: str) -> None:
    for url in (bucket, f"{bucket}/a", f"{bucket}/a/b.jsonl"):
        with pytest.raises(EventFileError, match=f"^there are no files at {url}. Give load"):
            files_below(url)
    with pytest.raises(EventFileError, match=f"cannot read {bucket}/a/b.jsonl: it is gone"):
        list(read_file(f"{bucket}/a/b.jsonl"))
    with pytest.raises(EventFileError, match="cannot use gs://no-such-bucket/a: there is no bucket no-such-bucket"):
        files_below("gs://no-such-bucket/a")
