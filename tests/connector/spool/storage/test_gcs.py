"""The file store in Cloud Storage: errors are one line, transient errors are retried."""

import re
import time
import traceback

import pytest
from google.cloud.storage import Blob
from google.cloud.storage.exceptions import DataCorruption

from connector.core.timestamps import SECOND
from connector.errors import SpoolError, StorageUnavailableError
from connector.spool.storage import bucket as bucket_module
from connector.spool.storage.failing import FAILING
from connector.spool.storage.gcs import GcsStore
from tests.cloud_storage import CloudStorage, Fault, Proxy
from tests.connector.spool.storage.buckets import opened, uploads

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy


# What is refused is one clear line.


@pytest.mark.parametrize("call", ["create", "replace", "read", "list", "exists", "delete", "locked"])
def test_a_missing_bucket_is_one_line(cloud_storage: CloudStorage, call: str) -> None:
    storage = opened("gs://nowhere-at-all/spool")
    with pytest.raises(SpoolError, match=r"there is no bucket nowhere-at-all\. Create it, or choose") as raised:
        use(storage, call)
    assert "\n" not in str(raised.value)
    assert cloud_storage.url not in str(raised.value)


@pytest.mark.parametrize("call", ["replace", "list"])
def test_a_store_whose_bucket_was_deleted_says_so(bucket: str, gcs_proxy: Proxy, call: str) -> None:
    storage = opened(f"{bucket}/spool")
    storage.create("a", b"one")
    gcs_proxy.faults.append(Fault(status=404, message="The specified bucket does not exist."))
    with pytest.raises(SpoolError, match="there is no bucket bucket-"):
        use(storage, call)


@pytest.mark.long(but=3)
@pytest.mark.parametrize("call", ["create", "replace", "read", "list", "exists", "delete", "locked"])
def test_a_permission_that_is_denied_is_one_line_and_not_retried(bucket: str, gcs_proxy: Proxy, call: str) -> None:
    denied = "a@b.c does not have storage.objects.list access to the Google Cloud Storage bucket."
    gcs_proxy.faults.append(Fault(status=403, message=denied))
    with pytest.raises(
        SpoolError, match=r"permission denied.*\. Give this account roles/storage\.objectUser"
    ) as raised:
        use(opened(f"{bucket}/spool", patience=60), call)
    assert "a@b.c" not in str(raised.value)
    assert len(gcs_proxy.requests) == 1


REFUSALS = [
    (403, "Object 'b/x' is subject to bucket's retention policy and cannot be deleted.", "a retention policy keeps"),
    (403, "Object 'b/x' is under active Event-Based hold and cannot be deleted.", "under a hold"),
    (403, "Permission denied on Cloud KMS key. Please ensure that", "its Cloud KMS key cannot be used"),
    (403, "The billing account for the owning project is disabled in state absent", "billing of the bucket's project"),
    (403, "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc", "VPC Service Co"),
    (400, "Bucket is a requester pays bucket but no user project provided.", "the requester pays for this bucket"),
]


@pytest.mark.long(but=3)
@pytest.mark.parametrize("call", ["create", "read", "delete"])
@pytest.mark.parametrize(("status", "message", "why"), REFUSALS)
def test_a_refusal_that_no_role_cures_is_named_as_itself(
    bucket: str, gcs_proxy: Proxy, call: str, status: int, message: str, why: str
) -> None:
    gcs_proxy.faults.append(Fault(status=status, message=message))
    with pytest.raises(SpoolError, match=re.escape(why)) as raised:
        use(opened(f"{bucket}/spool", patience=60), call)
    assert "objectUser" not in str(raised.value)
    assert "Retry later" not in str(raised.value)
    assert not isinstance(raised.value, StorageUnavailableError)
    assert len(gcs_proxy.requests) == 1


def test_without_credentials_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name, value in {"CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in (bucket_module.EMULATOR, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SpoolError, match=r"no valid Google Cloud credentials were found\. Run `gcloud auth"):
        opened("gs://bucket/spool").read("spool.json")


def test_credentials_that_are_not_accepted_are_one_line(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.faults.append(Fault(status=401, message="Bearer secret"))
    with pytest.raises(SpoolError, match="it requires Google credentials") as raised:
        opened(f"{bucket}/spool").read("spool.json")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("status", "words"), [(503, "answers 503 Service Unavailable"), (429, "answers 429")])
def test_a_server_that_stays_unwell_is_one_line(bucket: str, gcs_proxy: Proxy, status: int, words: str) -> None:
    gcs_proxy.faults.append(Fault(status=status))
    with pytest.raises(StorageUnavailableError, match=f"{words}.*nothing is lost"):
        opened(f"{bucket}/spool").replace("a", b"one")


def test_a_network_that_stays_cut_is_one_line(bucket: str, gcs_proxy: Proxy) -> None:
    gcs_proxy.faults.append(Fault(after=100))
    for call in ("create", "read", "list"):
        with pytest.raises(
            StorageUnavailableError, match=r"Cloud Storage cannot be reached\. Check the network"
        ) as raised:
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
    "fault",
    [Fault(status=503, times=2), Fault(status=429, times=1), Fault(after=0, times=2), Fault(after=5, times=1)],
    ids=["503", "429", "cut", "cut in the middle"],
)
def test_transient_errors_are_retried(bucket: str, gcs_proxy: Proxy, fault: Fault) -> None:
    storage = opened(f"{bucket}/spool", patience=60)
    gcs_proxy.faults.append(fault)
    storage.create("folder/a", b"one")
    assert fault.hits >= 1
    fault.times = 1
    assert storage.read("folder/a").to_pybytes() == b"one"
    fault.times = 1
    assert storage.list("folder") == ["a"]


@pytest.mark.parametrize("call", ["replace", "read", "list"])
def test_a_server_that_stays_unwell_is_known_to_fail_until_it_answers(bucket: str, gcs_proxy: Proxy, call: str) -> None:
    url, fault = f"{bucket}/spool", Fault(status=503)
    opened(url).create("a", b"one")
    gcs_proxy.faults.append(fault)

    def failing() -> list[str]:
        later = time.time_ns() + 60 * SECOND
        return [str(retry.cause) for retry in FAILING.lasting(later) if retry.subject == url]

    with pytest.raises(SpoolError):
        use(opened(url), call)
    assert failing() == [f"Cloud Storage answers 503 Service Unavailable, for {url}"]
    fault.times = 0
    use(opened(url), call)
    assert failing() == []


def test_a_bucket_that_answers_that_there_is_no_such_object_works_again(bucket: str, gcs_proxy: Proxy) -> None:
    """If only documents that may appear are read, nothing else would show it."""
    storage = opened(f"{bucket}/spool", patience=60)
    storage.create("a", b"one")
    gcs_proxy.faults.append(Fault(status=503, times=1))
    with pytest.raises(FileNotFoundError):
        storage.read("b")
    assert FAILING.lasting(time.time_ns() + 60 * SECOND) == []


def test_a_large_upload_that_is_cut_leaves_nothing_and_one_that_is_cut_once_continues(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    data = bytes(range(256)) * (20 * 4096)  # 20 MiB, in chunks
    cut = Fault(meets=lambda method, path: "upload_id" in path and method == "PUT", after=1_000_000)
    gcs_proxy.faults.append(cut)
    with pytest.raises(SpoolError, match="cannot be reached"):
        opened(f"{bucket}/spool").create("segments/large", data)
    assert cut.hits > 0
    assert cloud_storage.objects(bucket) == {}
    cut.times = 1
    opened(f"{bucket}/spool", patience=60).create("segments/large", data)
    assert cut.times == 0
    assert cloud_storage.objects(bucket) == {"spool/segments/large": data}


@pytest.mark.parametrize("chunk", [0, 2], ids=["the first chunk", "the last"])
def test_a_large_upload_of_which_the_server_takes_a_part_of_a_chunk_starts_over(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy, chunk: int
) -> None:
    data = bytes(range(256)) * (20 * 4096)  # 20 MiB, in 3 chunks
    seen: list[str] = []

    def is_meant(method: str, path: str) -> bool:
        if "upload_id" in path and method == "PUT":
            seen.append(path)
        return len(seen) == chunk + 1

    gcs_proxy.faults.append(short := Fault(meets=is_meant, takes=(chunk * 8 + 1) * 1024 * 1024, times=1))
    storage = opened(f"{bucket}/spool", patience=60)
    storage.create("segments/large", data)
    assert short.hits == 1
    assert cloud_storage.objects(bucket) == {"spool/segments/large": data}
    begun_uploads = [request for request in gcs_proxy.requests if uploads(*request.split(" ", 1))]
    assert len([request for request in begun_uploads if "ifGenerationMatch=0" in request]) == 2


def test_bytes_that_were_damaged_in_transit_are_worth_another_attempt(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object, **__: object) -> bytes:
        raise DataCorruption(None, "checksums differ")

    monkeypatch.setattr(Blob, "download_as_bytes", damaged)
    with pytest.raises(StorageUnavailableError, match=r"it was damaged in transit\. Run it again: nothing is lost"):
        opened(f"{bucket}/spool").read("a")


def test_a_server_that_never_takes_a_whole_chunk_is_one_line(
    cloud_storage: CloudStorage, bucket: str, gcs_proxy: Proxy
) -> None:
    gcs_proxy.faults.append(Fault(meets=lambda method, path: "upload_id" in path and method == "PUT", takes=7))
    with pytest.raises(
        StorageUnavailableError, match=r"cannot use .*/large: Cloud Storage accepts only a part"
    ) as raised:
        opened(f"{bucket}/spool").create("segments/large", bytes(20 << 20))
    assert "upload_id" not in "".join(traceback.format_exception(raised.value))
    assert cloud_storage.objects(bucket) == {}


@pytest.mark.long(but=3)
@pytest.mark.parametrize("status", [0, 403, 404, 412, 503])
def test_no_message_nor_its_causes_hold_the_secret_of_an_upload(bucket: str, gcs_proxy: Proxy, status: int) -> None:
    chunks = Fault(meets=lambda method, path: "upload_id" in path and method == "PUT", status=status)
    gcs_proxy.faults.append(chunks)
    with pytest.raises((SpoolError, FileExistsError)) as raised:
        opened(f"{bucket}/spool").create("segments/large", bytes(9 << 20))
    assert "upload_id" not in "".join(traceback.format_exception(raised.value))
