"""The storage in Cloud Storage, beside what every storage promises (test_storage_contract)."""

import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.writing import initialize, sole_writer
from connector.storage import bucket as bucket_module
from connector.storage import lease
from connector.storage.bucket import Bucket
from connector.storage.gcs import GcsStore
from tests.cloud_storage import CloudStorage, Proxy, Trouble
from tests.connector.builders import AT
from tests.connector.spool.test_writing import NAME, NOW, SINGERS, numbers, sealed, writer_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy

DAEMON = """
import sys
from tests.connector.storage.test_gcs import seal_for_ever
seal_for_ever(sys.argv[1])
"""


def uploads(method: str, path: str) -> bool:
    return method == "POST" and "/upload/" in path


def opened(url: str, *, patience: float = 0.4) -> GcsStore:
    return GcsStore(url, patience=patience, failure=SpoolError, option="spool.path")


def begun(url: str) -> Spool:
    spool = Spool.at(url)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def seal_for_ever(url: str) -> None:
    """A daemon's life."""
    spool = Spool.at(url)
    with sole_writer(spool):
        writer = writer_of(spool)
        sys.stdout.write("writes\n")
        sys.stdout.flush()
        while True:
            sealed(writer)


@contextmanager
def daemon(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", DAEMON, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"writes\n", one.stderr and one.stderr.read().decode()
        try:
            yield one
        finally:
            one.kill()


# What is refused is one clear line.


@pytest.mark.parametrize("call", ["create", "replace", "read", "list", "exists", "delete", "locked"])
def test_a_missing_bucket_is_one_line(cloud_storage: CloudStorage, call: str) -> None:
    storage = opened("gs://nowhere-at-all/spool")
    with pytest.raises(SpoolError, match=r"there is no bucket nowhere-at-all\. Create it, or choose") as raised:
        use(storage, call)
    assert "\n" not in str(raised.value)
    assert cloud_storage.url not in str(raised.value)


def test_a_bucket_that_is_deleted_meanwhile_is_told_to_who_writes(bucket: str, gcs_proxy: Proxy) -> None:
    storage = opened(f"{bucket}/spool")
    storage.create("a", b"one")
    gcs_proxy.troubles.append(Trouble(status=404, message="The specified bucket does not exist."))
    with pytest.raises(SpoolError, match="there is no bucket bucket-"):
        storage.replace("a", b"two")


@pytest.mark.parametrize("call", ["create", "replace", "read", "list", "exists", "delete", "locked"])
def test_a_permission_that_is_denied_is_one_line_and_not_retried(bucket: str, gcs_proxy: Proxy, call: str) -> None:
    denied = "a@b.c does not have storage.objects.list access to the Google Cloud Storage bucket."
    gcs_proxy.troubles.append(Trouble(status=403, message=denied))
    with pytest.raises(
        SpoolError, match=r"permission denied.*\. Give this account roles/storage\.objectUser"
    ) as raised:
        use(opened(f"{bucket}/spool", patience=60), call)
    assert "a@b.c" not in str(raised.value)
    assert len(gcs_proxy.requests) == 1


def test_without_credentials_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name, value in {"CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in (bucket_module.EMULATOR, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SpoolError, match=r"no Google credentials were found\. Run `gcloud auth"):
        opened("gs://bucket/spool").read("spool.json")


def test_credentials_that_are_not_accepted_are_told(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.troubles.append(Trouble(status=401, message="Bearer secret"))
    with pytest.raises(SpoolError, match="it requires Google credentials") as raised:
        opened(f"{bucket}/spool").read("spool.json")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("status", "words"), [(503, "answers 503 Service Unavailable"), (429, "answers 429")])
def test_a_server_that_stays_unwell_is_one_line(bucket: str, gcs_proxy: Proxy, status: int, words: str) -> None:
    gcs_proxy.troubles.append(Trouble(status=status))
    with pytest.raises(SpoolError, match=f"{words}.*nothing is lost"):
        opened(f"{bucket}/spool").replace("a", b"one")


def test_a_network_that_stays_cut_is_one_line(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.troubles.append(Trouble(after=100))
    for call in ("create", "read", "list"):
        with pytest.raises(SpoolError, match=r"Cloud Storage cannot be reached\. Check the network") as raised:
            use(opened(f"{bucket}/spool"), call)
        assert "\n" not in str(raised.value)


def use(storage: GcsStore, call: str) -> None:
    match call:
        case "create" | "replace":
            getattr(storage, call)("a", b"one")
        case "locked":
            with storage.locked("writer.lock", "taken"):
                pytest.fail("a lock was taken")
        case _:
            getattr(storage, call)("a")


# What passes by itself is retried.


@pytest.mark.parametrize(
    "trouble",
    [Trouble(status=503, times=2), Trouble(status=429, times=1), Trouble(after=0, times=2), Trouble(after=5, times=1)],
    ids=["503", "429", "cut", "cut in the middle"],
)
def test_what_passes_by_itself_is_retried(bucket: str, gcs_proxy: Proxy, trouble: Trouble) -> None:
    storage = opened(f"{bucket}/spool", patience=60)
    gcs_proxy.troubles.append(trouble)
    storage.create("a", b"one")
    assert trouble.struck >= 1
    trouble.times = 1
    assert storage.read("a").to_pybytes() == b"one"
    trouble.times = 1
    assert storage.list("") == [] or storage.exists("a")


def test_a_large_upload_that_is_cut_leaves_nothing_and_one_that_is_cut_once_goes_on(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    data = bytes(range(256)) * (20 * 4096)  # 20 MiB, in chunks
    cut = Trouble(meets=lambda method, path: "upload_id" in path and method == "PUT", after=1_000_000)
    gcs_proxy.troubles.append(cut)
    with pytest.raises(SpoolError, match="cannot be reached"):
        opened(f"{bucket}/spool").create("segments/large", data)
    assert cut.struck > 0
    assert cloud_storage.objects(bucket) == {}
    cut.times = 1
    opened(f"{bucket}/spool", patience=60).create("segments/large", data)
    assert cut.times == 0
    assert cloud_storage.objects(bucket) == {"spool/segments/large": data}


@pytest.mark.parametrize("chunk", [0, 2], ids=["the first chunk", "the last"])
def test_a_large_upload_of_which_the_server_takes_a_part_of_a_chunk_begins_anew(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy, chunk: int
) -> None:
    data = bytes(range(256)) * (20 * 4096)  # 20 MiB, in 3 chunks
    seen: list[str] = []

    def is_meant(method: str, path: str) -> bool:
        if "upload_id" in path and method == "PUT":
            seen.append(path)
        return len(seen) == chunk + 1

    gcs_proxy.troubles.append(short := Trouble(meets=is_meant, takes=(chunk * 8 + 1) * 1024 * 1024, times=1))
    storage = opened(f"{bucket}/spool", patience=60)
    storage.create("segments/large", data)
    assert short.struck == 1
    assert cloud_storage.objects(bucket) == {"spool/segments/large": data}
    begun_uploads = [request for request in gcs_proxy.requests if uploads(*request.split(" ", 1))]
    assert len([request for request in begun_uploads if "ifGenerationMatch=0" in request]) == 2


def test_a_server_that_never_takes_a_whole_chunk_is_one_line(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    gcs_proxy.troubles.append(Trouble(meets=lambda method, path: "upload_id" in path and method == "PUT", takes=7))
    with pytest.raises(SpoolError, match=r"cannot use .*/large: Cloud Storage accepts only a part of it") as raised:
        opened(f"{bucket}/spool").create("segments/large", bytes(20 << 20))
    assert "upload_id" not in "".join(traceback.format_exception(raised.value))
    assert cloud_storage.objects(bucket) == {}


@pytest.mark.parametrize("status", [0, 403, 404, 412, 503])
def test_no_message_nor_its_causes_hold_the_secret_of_an_upload(bucket: str, gcs_proxy: Proxy, status: int) -> None:
    chunks = Trouble(meets=lambda method, path: "upload_id" in path and method == "PUT", status=status)
    gcs_proxy.troubles.append(chunks)
    with pytest.raises((SpoolError, FileExistsError)) as raised:
        opened(f"{bucket}/spool").create("segments/large", bytes(9 << 20))
    assert "upload_id" not in "".join(traceback.format_exception(raised.value))


def test_a_seal_whose_answer_is_lost_is_ones_own(bucket: str, gcs_proxy: Proxy) -> None:
    writer = writer_of(spool := begun(f"{bucket}/spool"))
    lost = Trouble(meets=lambda _, path: "ifGenerationMatch=0" in path, passes=True, times=1)
    gcs_proxy.troubles.append(lost)
    sealed(writer)
    assert lost.struck == 1
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


# Two daemons.


def test_of_two_daemons_the_second_stops_and_says_who_the_first_is(bucket: str) -> None:
    spool = begun(f"{bucket}/spool")
    with daemon(spool.path) as first:
        with (
            pytest.raises(SpoolInUseError, match=rf"is written by another daemon \(process {first.pid} on "),
            sole_writer(spool),
        ):
            pytest.fail("two daemons")
        assert first.poll() is None


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
    ] or len(spool.storage.list("segments")) == 3


@contextmanager
def paused_before(path: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Who uploads to `path` is paused once, after every check and right before the request."""
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
        assert other.prune(now=NOW, grace=0) == 18

    with (
        paused_before("floor.json", monkeypatch, taken_over),
        pytest.raises(SpoolInUseError, match="another daemon has written"),
    ):
        late.prune(now=NOW, grace=0)
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
    lost = Trouble(meets=lambda method, url: uploads(method, url) and "ifGenerationMatch=0" in url, passes=True)
    lost.times = int(path == "spool.json")
    gcs_proxy.troubles.append(lost)
    spool = begun(f"{bucket}/spool")
    sealed(writer := writer_of(spool), 2)
    consumers.record(spool, "c", 1, now=NOW)
    lost.times += path == "floor.json"
    assert writer.prune(now=NOW, grace=0) == 1
    assert lost.struck == 1
    assert spool.floor() == 2


# The lease.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 1.0)
    monkeypatch.setattr(lease, "RENEWAL", 0.05)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders are on another machine."""
    monkeypatch.setattr(lease, "_machine", lambda: "")


def holder(bucket: str, process: int = 7) -> bytes:
    return lease.Holder("another", "boot pid:[1]", process, "0", f"{bucket}{process}").to_json()


@pytest.mark.usefixtures("quick", "elsewhere")
def test_a_lease_of_another_machine_is_taken_over_once_it_has_not_been_renewed(
    cloud_storage: CloudStorage, bucket: str
) -> None:
    cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
    storage = opened(bucket, patience=60)
    with pytest.raises(SpoolInUseError, match=r"taken \(process 7 on another; unless it is renewed its lease ends in"):
        use_lock(storage)
    deadline = time.monotonic() + 5
    while True:
        try:
            use_lock(storage)
        except SpoolInUseError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            break
    assert cloud_storage.objects(bucket) == {}


@pytest.mark.usefixtures("quick", "elsewhere")
def test_a_lease_that_is_held_is_renewed(cloud_storage: CloudStorage, bucket: str) -> None:
    with opened(bucket, patience=60).locked("writer.lock", "taken"):
        until = time.monotonic() + 2.5 * lease.LEASE
        while time.monotonic() < until:
            with pytest.raises(SpoolInUseError):
                use_lock(opened(bucket, patience=60))
            time.sleep(0.05)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("deleted", [False, True])
def test_who_finds_its_lease_taken_over_refuses_to_write(
    cloud_storage: CloudStorage, bucket: str, *, deleted: bool
) -> None:
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "the spool is taken") as check:
        storage.create("a", b"one")
        if deleted:
            cloud_storage.delete(f"{bucket}/writer.lock")
        else:
            cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
        deadline = time.monotonic() + 5
        while not storage._held[0]._lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(
            SpoolInUseError,
            match=r"the spool is taken \(process 7 on another\), which took|the lock .*/writer\.lock was deleted",
        ):
            storage.replace("a", b"two")
        with pytest.raises(SpoolInUseError):
            storage.create("b", b"")
        with pytest.raises(SpoolInUseError):
            storage.delete("a")
        with pytest.raises(SpoolInUseError):
            check()
    assert set(cloud_storage.objects(bucket)) == ({"a"} if deleted else {"a", "writer.lock"})


@pytest.mark.usefixtures("quick")
def test_who_cannot_renew_its_lease_for_a_fault_of_its_own_refuses_to_write(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: lease.Lease) -> None:
        raise MemoryError

    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "the spool is taken"):
        monkeypatch.setattr(lease.Lease, "_renew", broken)
        storage._held[0]._thread.join(5)
        with pytest.raises(SpoolInUseError, match=r"writer\.lock could not be renewed: MemoryError") as raised:
            storage.replace("a", b"two")
        assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("quick", "elsewhere")
@pytest.mark.parametrize("fast", [15, -15, 3600])
def test_a_clock_that_is_wrong_takes_over_no_lease_that_is_held_and_waits_no_longer_for_one_that_is_not(
    cloud_storage: CloudStorage, bucket: str, monkeypatch: pytest.MonkeyPatch, fast: int
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + fast)
    with (
        opened(bucket, patience=60).locked("writer.lock", "taken"),
        pytest.raises(SpoolInUseError, match="its lease ends in"),
    ):
        use_lock(opened(bucket, patience=60))
    cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
    time.sleep(lease.LEASE + 0.1)
    use_lock(opened(bucket, patience=60))
    assert cloud_storage.objects(bucket) == {}


def test_a_takeover_whose_answer_is_lost_is_ones_own(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    gone = lease.Holder("here", lease._machine(), 2**22 + 1, "0", "nonce")
    cloud_storage.put(f"{bucket}/writer.lock", gone.to_json())

    def takes_over(method: str, path: str) -> bool:
        return uploads(method, path) and "ifGenerationMatch=0" not in path

    gcs_proxy.troubles.append(lost := Trouble(meets=takes_over, passes=True, times=1))
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "taken"):
        storage.create("a", b"one")
    assert lost.struck == 1
    assert set(cloud_storage.objects(bucket)) == {"a"}


@pytest.mark.usefixtures("quick")
def test_a_lease_outlives_a_network_that_is_cut_for_a_while(bucket: str, gcs_proxy: Proxy) -> None:
    cut = Trouble(meets=uploads, times=3)
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "taken"):
        gcs_proxy.troubles.append(cut)
        deadline = time.monotonic() + 20
        while cut.struck < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        storage.create("a", b"one")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [1, 2])
def test_a_lease_whose_answer_is_lost_is_ones_own(bucket: str, gcs_proxy: Proxy, number: int) -> None:
    """The answer to the first upload, or to a renewal."""
    storage = opened(bucket, patience=60)
    lost = Trouble(meets=uploads, passes=True, times=1)
    gcs_proxy.troubles.append(Trouble(meets=lambda *_: False) if number == 2 else lost)
    with storage.locked("writer.lock", "taken"):
        gcs_proxy.troubles.append(lost)
        deadline = time.monotonic() + 20
        while not lost.struck or len(gcs_proxy.requests) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        storage.create("a", b"one")


def use_lock(storage: GcsStore) -> None:
    with storage.locked("writer.lock", "taken"):
        pass


# What object storage costs.


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
    assert writer.prune(now=NOW, grace=0) == 2
    consumers.record(spool, "c", 4, now=NOW)
    assert writer.prune(now=NOW + SECOND - 1, grace=0) == 0
    assert writer.prune(now=NOW + SECOND, grace=0) == 2
    assert numbers(spool) == [5]
