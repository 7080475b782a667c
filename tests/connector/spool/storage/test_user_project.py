"""A bucket whose requester pays: every request names the project that is billed."""

import pytest

from connector.config import validated
from connector.config.sections import SpoolConfig
from connector.errors import ConfigurationError, SpoolError
from connector.spool.reading import Spool
from connector.spool.storage.bucket import Bucket
from connector.spool.storage.locations import absolute, billed, bucket_and_prefix, unbilled, user_project
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.sink_type import SINK
from tests.cloud_storage import Fault, Proxy
from tests.connector.spool.storage.buckets import begun, opened, uploads

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy


def unbilled_requests(proxy: Proxy) -> list[str]:
    """The requests that name no project. A chunk is sent to a URL of Cloud Storage's, which has an upload's project."""
    return [one for one in proxy.requests if "userProject=payer" not in one and not one.startswith("PUT ")]


def test_every_request_of_a_store_names_the_project(bucket: str, gcs_proxy: Proxy) -> None:
    store = opened(billed(f"{bucket}/spool", "payer"))
    store.create("a", b"one")
    data, version = store.read_version("a")
    store.replace("a", b"two", version=version)
    store.replace("a", b"three")
    store.put("b", b"four")
    assert (data, store.read("a").to_pybytes()) == (b"one", b"three")
    with store.open("b") as file:
        assert file.read() == b"four"
    assert store.exists("a")
    assert store.find("c") is None
    assert store.list("folder") == []
    assert [one.path for one in store.walk()] == ["a", "b"]
    with store.locked("writer.lock", "taken"):
        assert [one.path for one in store.walk("writer")] == ["writer.lock"]
    store.delete("a")
    Bucket(billed(bucket, "payer"), failure=SpoolError, option="x").missing_permissions()
    assert len(gcs_proxy.requests) > 15
    assert unbilled_requests(gcs_proxy) == []


def test_an_upload_in_chunks_names_the_project(bucket: str, gcs_proxy: Proxy) -> None:
    store = opened(billed(bucket, "payer"))
    store.create("large", bytes(9 * 1024 * 1024))
    assert store.find("large") is not None
    assert sum(one.startswith("PUT ") for one in gcs_proxy.requests) > 1
    assert unbilled_requests(gcs_proxy) == []


def test_a_spool_and_the_spools_of_its_backfills_keep_the_project(bucket: str, gcs_proxy: Proxy) -> None:
    spool = begun(billed(f"{bucket}/spool", "payer"))
    again = Spool.at(spool.path)
    assert again.header() == spool.header()
    assert user_project(again.path) == "payer"
    assert unbilled_requests(gcs_proxy) == []


def test_without_a_project_a_bucket_whose_requester_pays_is_refused_with_the_option(
    bucket: str, gcs_proxy: Proxy
) -> None:
    message = "Bucket is a requester pays bucket but no user project provided."
    gcs_proxy.faults.append(Fault(uploads, status=400, message=message))
    with pytest.raises(SpoolError, match=r"the requester pays for this bucket.* with user_project, beside the option"):
        opened(bucket).create("a", b"")


def test_a_project_that_the_account_may_not_bill_is_named_as_such(bucket: str, gcs_proxy: Proxy) -> None:
    message = "a@b.c does not have serviceusage.services.use access to the Google Cloud project."
    gcs_proxy.faults.append(Fault(uploads, status=403, message=message))
    with pytest.raises(SpoolError, match=r"project of user_project cannot be billed.*serviceUsageConsumer"):
        opened(billed(bucket, "payer")).create("a", b"")


def test_the_options_of_a_configuration_put_the_project_into_every_path_of_a_bucket() -> None:
    config = validated(
        {
            "source": SOURCE,
            "spool": {"path": "gs://bucket/spool", "user_project": "payer"},
            "sink": {"path": "gs://bucket/events", "dead_letters": "./dead", "user_project": "other.org:payer"},
        }
    )
    assert config.spool.path == "gs://payer@bucket/spool"
    assert config.sink.model_dump()["path"] == "gs://other.org:payer@bucket/events"
    assert config.sink.dead_letters == "./dead/files"
    assert SpoolConfig.model_validate(config.spool.model_dump()).path == config.spool.path


@pytest.mark.parametrize("sink", [{"type": "bigquery", "dataset": "d"}, {"type": "spanner", "database": "other"}])
def test_the_dead_letters_of_every_sink_may_be_in_such_a_bucket(sink: dict[str, str]) -> None:
    config = validated(
        {"source": SOURCE, "sink": {**sink, "dead_letters": "gs://bucket/dead", "user_project": "payer"}}
    )
    assert config.sink.dead_letters == f"gs://payer@bucket/dead/{sink['type']}"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"path": "./spool", "user_project": "payer"}, "spool: user_project is for a bucket, and path names none"),
        ({"path": "gs://bucket", "user_project": "No project"}, "spool: user_project 'No project' is not a project"),
        ({"path": "gs://a-payer@bucket", "user_project": "payer"}, "names another project than user_project"),
        ({"path": "gs://@bucket"}, "is not a project's id"),
    ],
)
def test_a_project_without_a_bucket_or_two_of_them_are_refused(section: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validated({"source": SOURCE, "spool": section})
    assert said in str(caught.value)


def test_the_project_is_no_part_of_the_place() -> None:
    url = "gs://payer@bucket/a@b/c"
    assert bucket_and_prefix(url) == bucket_and_prefix(unbilled(url)) == ("bucket", "a@b/c/")
    assert (user_project(url), user_project("gs://bucket/a@b"), user_project("./gs@x")) == ("payer", None, None)
    assert billed("./spool", "payer") == "./spool"
    assert absolute(f"{url}/") == url


def test_a_sink_that_is_billed_delivers_to_the_same_destination() -> None:
    def destination(**more: str) -> dict[str, str]:
        config = validated({"source": SOURCE, "sink": {"path": "gs://bucket/events", **more}})
        assert isinstance(config.sink, FilesConfig)
        return dict(SINK.destination(config.sink, config.source, config.envelope))

    assert destination(user_project="payer") == destination()
