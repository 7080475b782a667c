import sys
from pathlib import Path

import pytest

from connector.config import validated
from connector.errors import ConfigurationError, SpoolError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute, bucket_and_prefix, checked, in_cloud_storage

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}


def test_a_bucket_and_its_prefix() -> None:
    assert bucket_and_prefix("gs://bucket") == bucket_and_prefix("gs://bucket/") == ("bucket", "")
    assert (
        bucket_and_prefix("gs://a.bucket-1/a/b c")
        == bucket_and_prefix("gs://a.bucket-1/a/b c/")
        == (
            "a.bucket-1",
            "a/b c/",
        )
    )


@pytest.mark.parametrize(
    "path", ["gs://", "gs:///a", "gs://Bucket/a", "gs://b/a", "gs://bucket/a//b", "gs://bucket/.."]
)
def test_what_is_no_bucket_and_prefix_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="gs://"):
        checked(path)
    with pytest.raises(SpoolError, match="gs://"):
        Spool.at(path)
    with pytest.raises(ConfigurationError, match=r"spool\.path: .*sink\.path: "):
        validated({"source": SOURCE, "spool": {"path": path}, "sink": {"path": path}})


def test_what_is_neither_local_nor_cloud_storage_is_refused() -> None:
    with pytest.raises(ValueError, match="takes a local path or gs://bucket/prefix"):
        checked("s3://bucket/a")


def test_a_path_is_made_absolute_and_a_url_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("./spool") == str(tmp_path / "spool")
    assert absolute("gs://bucket/a/") == "gs://bucket/a"
    assert absolute("hdfs://host/checkpoint") == "hdfs://host/checkpoint"
    assert in_cloud_storage("gs://bucket")
    assert not in_cloud_storage("./gs:/bucket")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (
        "google.cloud.storage",
        "connector.spool.storage.bucket",
        "connector.spool.storage.lease",
        "connector.spool.storage.gcs",
    ):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    with pytest.raises(SpoolError, match=r"need the extra gcs.* pip install 'spanner-cdc-spark\[gcs\]'"):
        Spool.at("gs://bucket/spool")
