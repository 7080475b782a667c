"""Daemons on a spool in Cloud Storage: their preconditions, lost answers, and requests."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.storage.bucket import Bucket
from connector.spool.writing import initialize, sole_writer
from tests.cloud_storage import CloudStorage, Fault, Proxy
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, numbers, sealed, writer_of
from tests.connector.spool.storage.buckets import begun, daemon, uploads

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy


def test_a_seal_whose_answer_is_lost_is_ones_own(bucket: str, gcs_proxy: Proxy) -> None:
    writer = writer_of(spool := begun(f"{bucket}/spool"))
    lost = Fault(meets=lambda _, path: "ifGenerationMatch=0" in path, passes=True, times=1)
    gcs_proxy.faults.append(lost)
    sealed(writer)
    assert lost.hits == 1
    assert numbers(spool) == [1]
    sealed(writer)
    assert numbers(spool) == [1, 2]


def test_what_is_damaged_on_its_way_is_not_taken(cloud_storage: CloudStorage, bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    sealed(writer_of(spool))
    manifest = spool.manifest(1)
    cloud_storage.put(f"{bucket}/spool/{manifest.files[0].path}", b"something else")
    with pytest.raises(SpoolError, match="its checksum does not match"):
        next(spool.batches(manifest.files[0]))


def test_of_two_daemons_the_second_stops_and_says_who_the_first_is(bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    with daemon(spool.path) as first:
        with (
            pytest.raises(SpoolInUseError, match=rf"is written by another daemon \(process {first.pid} on "),
            sole_writer(spool),
        ):
            pytest.fail("two daemons")
        assert first.poll() is None


@pytest.mark.long
def test_a_daemon_that_was_killed_is_followed_at_once_on_the_same_machine(bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    for _ in range(3):
        with daemon(spool.path):
            before = spool.latest()
            while spool.latest() < before + 3:
                time.sleep(0.01)
    with sole_writer(spool):
        writer = writer_of(spool)
        epoch = writer.epoch
        sealed(writer)
    assert numbers(spool) == list(range(1, epoch + 2))
    assert len(spool.storage.list("segments")) == epoch + 1


def test_two_daemons_that_no_lease_keeps_apart_meet_at_the_manifest(bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    one, other = writer_of(spool), writer_of(Spool.at(spool.path))
    sealed(one)
    with pytest.raises(SpoolInUseError, match="another daemon has sealed epoch 1"):
        sealed(other)
    sealed(one)
    assert numbers(spool) == [1, 2]
    assert [file.path for manifest in spool.manifests(1, 2) for file in manifest.files] == [
        f"segments/{name}" for name in spool.storage.list("segments")
    ]


@contextmanager
def paused_before(path: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Pauses an upload to `path` once, after every check and right before the request."""
    left = [meanwhile]
    put = Bucket.put

    def pausing(one: Bucket, name: str, data: bytes, *, generation: int | None = None) -> int:
        if name == path and left:
            left.pop()()
        return put(one, name, data, generation=generation)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "put", pausing)
        yield
    assert not left


def test_the_floor_of_a_daemon_that_was_paused_does_not_land_on_a_later_one(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = begun(f"{bucket}/spool")
    sealed(writer_of(spool), 7)
    consumers.record(spool, "c", 5, now=NOW)
    late, other = writer_of(spool), writer_of(Spool.at(spool.path))

    def taken_over() -> None:
        sealed(other, 12)
        consumers.record(spool, "c", 18, now=NOW)
        assert other.retention.prune(now=NOW, grace=0) == 18

    with (
        paused_before("floor.json", monkeypatch, taken_over),
        pytest.raises(SpoolInUseError, match="another daemon has written"),
    ):
        late.retention.prune(now=NOW, grace=0)
    assert (spool.floor(), numbers(spool)) == (19, [19])
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        sealed(late)
    assert writer_of(spool).epoch == 19


def test_of_two_first_starts_the_one_that_was_paused_leaves_the_header_alone(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.at(f"{bucket}/spool")
    first: list[SpoolHeader] = []

    def other_starts() -> None:
        first.append(begun(spool.path).header())
        sealed(writer_of(spool))

    with (
        paused_before("spool.json", monkeypatch, other_starts),
        pytest.raises(SpoolInUseError, match="another daemon has written"),
    ):
        initialize(spool, NAME, AT + 1, "now", [])
    assert [spool.header()] == first
    assert writer_of(spool).epoch == 1


@pytest.mark.parametrize("path", ["spool.json", "floor.json"])
def test_a_header_or_a_floor_whose_answer_is_lost_is_ones_own(bucket: str, gcs_proxy: Proxy, path: str) -> None:
    lost = Fault(meets=lambda method, url: uploads(method, url) and "ifGenerationMatch=0" in url, passes=True)
    lost.times = int(path == "spool.json")
    gcs_proxy.faults.append(lost)
    spool = begun(f"{bucket}/spool")
    sealed(writer := writer_of(spool), 2)
    consumers.record(spool, "c", 1, now=NOW)
    lost.times += path == "floor.json"
    assert writer.retention.prune(now=NOW, grace=0) == 1
    assert lost.hits == 1
    assert spool.floor() == 2


def test_the_requests_of_a_seal_are_few(bucket: str, gcs_proxy: Proxy) -> None:
    writer = writer_of(begun(f"{bucket}/spool"))
    sealed(writer)
    del gcs_proxy.requests[:]
    sealed(writer)
    assert len(gcs_proxy.requests) == 3, gcs_proxy.requests  # the segment, the manifest, the floor


def test_the_floor_is_not_rewritten_more_than_once_a_second(bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    writer = writer_of(spool)
    for _ in range(5):
        sealed(writer)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 2
    consumers.record(spool, "c", 4, now=NOW)
    assert writer.retention.prune(now=NOW + SECOND - 1, grace=0) == 0
    assert writer.retention.prune(now=NOW + SECOND, grace=0) == 2
    assert numbers(spool) == [5]
