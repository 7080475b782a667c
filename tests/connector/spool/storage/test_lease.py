"""The lease that keeps a second process from a spool in Cloud Storage."""

import time
from collections.abc import Callable

import pytest

from connector.errors import SpoolError, SpoolInUseError
from connector.spool.storage import lease
from connector.spool.storage.gcs import GcsStore
from tests.cloud_storage import CloudStorage, Fault, Proxy
from tests.connector.spool.storage.buckets import opened, uploads

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed often."""
    monkeypatch.setattr(lease, "RENEWAL", 0.05)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts Cloud Storage's clock forward for those who compare a lease with it."""
    now = lease.Lease._now
    return lambda seconds: monkeypatch.setattr(lease.Lease, "_now", lambda one: now(one) + seconds)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders are on another machine."""
    monkeypatch.setattr(lease, "_machine", lambda: "")


def holder(bucket: str, process: int = 7) -> bytes:
    return lease.LeaseHolder("another", "boot pid:[1]", process, "0", f"{bucket}{process}").to_json()


@pytest.mark.usefixtures("elsewhere")
def test_a_lease_of_another_machine_is_taken_over_once_it_has_not_been_renewed(
    cloud_storage: CloudStorage, bucket: str, later: Callable[[float], None]
) -> None:
    cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
    storage = opened(bucket, patience=60)
    with pytest.raises(SpoolInUseError, match=r"taken \(process 7 on another; unless it is renewed its lease ends in"):
        use_lock(storage)
    later(lease.LEASE)
    use_lock(storage)
    assert cloud_storage.objects(bucket) == {}


@pytest.mark.usefixtures("quick", "elsewhere")
def test_a_lease_that_is_held_is_renewed(bucket: str) -> None:
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "taken"):
        first = storage._held[0]._generation
        deadline = time.monotonic() + 300
        while storage._held[0]._generation == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(SpoolInUseError):
            use_lock(opened(bucket, patience=60))


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
        deadline = time.monotonic() + 300
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


@pytest.mark.parametrize("taken_over", [False, True])
def test_who_has_not_renewed_its_lease_in_time_does_so_before_it_writes(
    cloud_storage: CloudStorage, bucket: str, monkeypatch: pytest.MonkeyPatch, *, taken_over: bool
) -> None:
    monkeypatch.setattr(lease, "RENEWAL", 3600.0)  # as while the process is paused
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "the spool is taken"):
        held = storage._held[0]
        first = held._generation
        storage.create("a", b"one")
        assert held._generation == first, "it was renewed just now"
        held._renewed_at -= 2 * lease.LEASE
        if taken_over:
            cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
            with pytest.raises(SpoolInUseError, match=r"the spool is taken \(process 7 on another\), which took over"):
                storage.create("b", b"two")
        else:
            storage.create("b", b"two")
            assert held._generation > first
    assert ("b" in cloud_storage.objects(bucket)) is not taken_over


def test_a_write_waits_no_longer_than_its_patience_for_a_lease_that_may_be_lost(
    bucket: str, gcs_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWAL", 3600.0)
    storage = opened(bucket)
    with storage.locked("writer.lock", "taken"):
        storage._held[0]._renewed_at -= 2 * lease.LEASE
        gcs_proxy.faults.append(Fault(meets=uploads))
        with pytest.raises(SpoolError, match=r"cannot (use|reach)"):
            storage.create("a", b"one")
        gcs_proxy.faults.clear()


@pytest.mark.usefixtures("quick")
def test_who_cannot_renew_its_lease_for_a_fault_of_its_own_refuses_to_write(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: lease.Lease) -> None:
        raise MemoryError

    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "the spool is taken"):
        monkeypatch.setattr(lease.Lease, "_renew", broken)
        storage._held[0]._thread.join(60)
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
    monkeypatch.setattr(lease, "LEASE", 14.0)
    with (
        opened(bucket, patience=60).locked("writer.lock", "taken"),
        pytest.raises(SpoolInUseError, match=r"its lease ends in|was taken or released just now"),
    ):
        use_lock(opened(bucket, patience=60))
    cloud_storage.put(f"{bucket}/writer.lock", holder(bucket))
    monkeypatch.setattr(lease, "LEASE", 0.1)
    time.sleep(0.2)
    use_lock(opened(bucket, patience=60))
    assert cloud_storage.objects(bucket) == {}


def test_a_takeover_whose_answer_is_lost_is_ones_own(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    gone = lease.LeaseHolder("here", lease._machine(), 2**22 + 1, "0", "nonce")
    cloud_storage.put(f"{bucket}/writer.lock", gone.to_json())

    def takes_over(method: str, path: str) -> bool:
        return uploads(method, path) and "ifGenerationMatch=0" not in path

    gcs_proxy.faults.append(lost := Fault(meets=takes_over, passes=True, times=1))
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "taken"):
        storage.create("a", b"one")
    assert lost.hits == 1
    assert set(cloud_storage.objects(bucket)) == {"a"}


@pytest.mark.usefixtures("quick")
def test_a_lease_outlives_a_network_that_is_cut_for_a_while(bucket: str, gcs_proxy: Proxy) -> None:
    cut = Fault(meets=uploads, times=3)
    storage = opened(bucket, patience=60)
    with storage.locked("writer.lock", "taken"):
        gcs_proxy.faults.append(cut)
        deadline = time.monotonic() + 300
        while cut.hits < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        storage.create("a", b"one")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [1, 2])
def test_a_lease_whose_answer_is_lost_is_ones_own(bucket: str, gcs_proxy: Proxy, number: int) -> None:
    """The answer to the first upload, or to a renewal."""
    storage = opened(bucket, patience=60)
    lost = Fault(meets=uploads, passes=True, times=1)
    gcs_proxy.faults.append(Fault(meets=lambda *_: False) if number == 2 else lost)
    with storage.locked("writer.lock", "taken"):
        gcs_proxy.faults.append(lost)
        deadline = time.monotonic() + 300
        while not lost.hits or len(gcs_proxy.requests) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        storage.create("a", b"one")


def use_lock(storage: GcsStore) -> None:
    with storage.locked("writer.lock", "taken"):
        pass
