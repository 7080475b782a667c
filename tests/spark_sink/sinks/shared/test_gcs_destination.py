"""Files of the sink in Cloud Storage, without Spark."""

import errno
import os
from pathlib import Path

import pytest

from connector.spool.storage.gcs import GcsStore
from connector.spool.storage.store import FileStore
from spark_sink.errors import SinkError
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.cloud_storage import EMULATOR, CloudStorage, Fault, Proxy
from tests.spark_sink.spools import NO_DEAD_LETTERS, START, SpoolMaker, record

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy

LARGE = os.urandom(1 << 20) * 20
"""More than goes up in one piece."""


def published(destination: FileStore, path: str, *pieces: bytes) -> None:
    file = destination.begin(path)
    try:
        for piece in pieces:
            file.append(piece)
        file.rest()
        file.publish()
    finally:
        file.abandon()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_file_is_there_when_it_is_published_and_not_before(cloud_storage: CloudStorage, bucket: str) -> None:
    file = destination_at(f"{bucket}/events").begin("d_T/2026/a.jsonl")
    file.append(b"one\n")
    file.rest()
    file.append(memoryview(b"two\n"))
    file.rest()
    assert cloud_storage.objects(bucket) == {}
    file.publish()
    assert cloud_storage.objects(bucket) == {"events/d_T/2026/a.jsonl": b"one\ntwo\n"}


def test_files_that_are_written_by_turns_do_not_mix(cloud_storage: CloudStorage, bucket: str) -> None:
    destination = destination_at(bucket)
    files = {name: destination.begin(name) for name in "abc"}
    expected = dict.fromkeys(files, b"")
    for number in range(400):
        for name, file in files.items():
            piece = f"{name}{number};".encode() * 300
            expected[name] += piece
            file.append(piece)
            if number % 7 == 0:
                file.rest()
    for file in files.values():
        file.rest()
        file.publish()
    assert cloud_storage.objects(bucket) == expected


def test_a_folder_is_an_object_without_bytes_however_often_it_is_marked(
    cloud_storage: CloudStorage, bucket: str
) -> None:
    for _ in range(2):
        destination_at(f"{bucket}/events").make_folder("d_T/2026/03/01/10/04")
    assert cloud_storage.objects(bucket) == {"events/d_T/2026/03/01/10/04/": b""}


@pytest.mark.parametrize("data", [b"", b"one", LARGE], ids=["empty", "small", "large"])
def test_a_replay_is_a_success(cloud_storage: CloudStorage, bucket: str, data: bytes) -> None:
    for _ in range(2):
        published(destination_at(bucket), "a", data)
    assert cloud_storage.objects(bucket) == {"a": data}


def test_a_shared_file_is_put_once_and_an_older_programs_is_replaced(cloud_storage: CloudStorage, bucket: str) -> None:
    for _ in range(2):
        destination_at(bucket).put("T/k.avsc", b"schema")
    assert cloud_storage.objects(bucket) == {"T/k.avsc": b"schema"}
    destination_at(bucket).put("T/k.avsc", b"another")
    assert cloud_storage.objects(bucket) == {"T/k.avsc": b"another"}


@pytest.mark.parametrize("data", [b"one", LARGE], ids=["small", "large"])
def test_what_is_there_with_other_bytes_is_never_overwritten(
    cloud_storage: CloudStorage, bucket: str, data: bytes
) -> None:
    cloud_storage.put(f"{bucket}/a", b"two")
    with pytest.raises(SinkError, match=f"{bucket}/a is there already, with other bytes. The sink never overwrites"):
        published(destination_at(bucket), "a", data)
    assert cloud_storage.objects(bucket) == {"a": b"two"}


def test_a_large_file_that_is_there_is_not_uploaded_again(bucket: str, gcs_proxy: Proxy) -> None:
    published(destination_at(bucket), "a", LARGE)
    assert sum(request.startswith("PUT") for request in gcs_proxy.requests) == 3
    del gcs_proxy.requests[:]
    published(destination_at(bucket), "a", LARGE)
    assert len(gcs_proxy.requests) == 1


@pytest.mark.parametrize("data", [b"one", LARGE], ids=["small", "large"])
def test_an_upload_that_is_cut_leaves_nothing_and_a_replay_completes_it(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy, data: bytes
) -> None:
    cut = Fault(meets=lambda method, _: method == ("PUT" if data is LARGE else "POST"), after=100_000)
    gcs_proxy.faults.append(cut)
    with pytest.raises(SinkError, match=r"cannot use gs://.*/a: Cloud Storage cannot be reached\. Check") as raised:
        published(GcsStore(bucket, failure=SinkError, option="sink.path", patience=0.4), "a", data)
    assert "\n" not in str(raised.value)
    assert cloud_storage.objects(bucket) == {}
    cut.times = 1
    published(destination_at(bucket), "a", data)
    assert cut.times == 0
    assert cloud_storage.objects(bucket) == {"a": data}


def test_an_upload_whose_answer_is_lost_is_a_success(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    lost = Fault(passes=True, times=1)
    gcs_proxy.faults.append(lost)
    published(destination_at(bucket), "a", b"one")
    assert lost.hits == 1
    assert cloud_storage.objects(bucket) == {"a": b"one"}


def test_a_missing_bucket_is_one_line_with_the_option(cloud_storage: CloudStorage) -> None:
    for use in (lambda to: published(to, "a", b"one"), lambda to: to.make_folder("a")):
        with pytest.raises(SinkError, match=r"no bucket nowhere-at-all\. Create it, or choose another with sink\.path"):
            use(destination_at("gs://nowhere-at-all/events", cloud_storage.url))


def test_a_permission_that_is_denied_is_one_line_with_the_option(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.faults.append(Fault(status=403, message="x does not have storage.objects.create access"))
    with pytest.raises(
        SinkError, match=r"permission denied \(storage\.objects\.create\)\. Give.*with sink\.path"
    ) as told:
        published(destination_at(bucket), "a", b"one")
    assert "\n" not in str(told.value)


def test_an_endpoint_is_met_without_the_environment(
    cloud_storage: CloudStorage, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(EMULATOR)
    for endpoint in (cloud_storage.url, f"{cloud_storage.url}/", cloud_storage.url.removeprefix("http://")):
        destination_at(bucket, endpoint).make_folder("a")
    assert cloud_storage.objects(bucket) == {"a/": b""}


def test_however_many_files_are_pending_one_descriptor_is_held(bucket: str) -> None:
    destination = destination_at(bucket)
    before = descriptors()
    files = [destination.begin(f"a{number}") for number in range(300)]
    for file in files:
        file.append(b"x" * 300_000)
    assert descriptors() == before + 1
    for file in files:
        file.abandon()
        file.abandon()
    assert descriptors() == before


def test_a_temporary_folder_that_is_full_is_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(
        SinkError, match=r"temporary folder .*: No space left on device\. Free space there, or set TMPDIR"
    ):
        published(destination_at(bucket), "a", b"one")


@pytest.mark.long(but=1)
@pytest.mark.parametrize("gzip", [False, True])
def test_a_bucket_holds_the_bytes_of_a_local_folder_and_its_folders(
    cloud_storage: CloudStorage, bucket: str, spool: SpoolMaker, tmp_path: Path, *, gzip: bool
) -> None:
    for epoch in range(3):
        spool.seal(*(record(START + epoch * 40 * 10**9 + n, range(2000), table=f"T {n}ä") for n in range(3)))
    shape = FileOptions(gzip=gzip, rotate_bytes=500_000, by_minute=True)
    root = tmp_path / "out"
    for destination in (destination_at(str(root)), destination_at(f"{bucket}/events")):
        writer = FileWriter(spool.spool, spool.spool_id, destination, shape, NO_DEAD_LETTERS)
        for group in file_groups(spool.spool.manifests(1, 3), by_minute=True):
            assert list(writer.write(group))
    local = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    folders = {f"{path.rpartition('/')[0]}/": b"" for path in local}
    assert len(folders) == 6
    assert cloud_storage.objects(f"{bucket}/events") == local | folders
