"""A daemon with a spool in Cloud Storage that is killed at random loses and duplicates nothing."""

import sys
import threading
import time
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest

from connector.core.timestamps import format_rfc3339
from emulator import Workload
from tests.cloud_storage import CloudStorage
from tests.integration.commands import configuration, manifests, reading, run
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load

pytestmark = pytest.mark.emulator


def test_every_committed_mod_is_sealed_once_in_a_bucket_through_kills_at_random_times(
    database: MakeDatabase, cloud_storage: CloudStorage, bucket: str, tmp_path: Path
) -> None:
    seed = time.time_ns() % 1_000_000
    sys.stdout.write(f"seed {seed}\n")
    random = Random(seed)
    sample = database()
    spool = f"{bucket}/spool"
    source = {"start": format_rfc3339(time.time_ns())}
    config = configuration(tmp_path, sample, source=source, spool={"path": spool})
    workload = Workload(sample, seed=seed)
    resting = threading.Event()
    with load(workload, rate=80):
        for _ in range(2):
            with reading(config) as daemon:
                before = len(manifests(spool))
                daemon.until(lambda: len(manifests(spool)) > before, "a seal")  # noqa: B023
                with reading(config, until_reading=False) as second:
                    rejected = second.wait()
                    assert rejected.code == 1
                    assert f"is written by another daemon (process {daemon.process.pid} on " in rejected.complaint
                resting.wait(random.uniform(0.0, 0.5))
                daemon.stop(SIGKILL)
    more = {**source, "end": last_commit(workload)}
    ended = run("read", configuration(tmp_path, sample, source=more, spool={"path": spool}))
    assert ended.code == 0, ended.err
    assert " ERROR " not in ended.err
    kept = assert_delivered(spool, workload.committed, official=sample)
    assert len({manifest.writer for manifest in kept}) > 2
    listed = {f"spool/{file.path}" for manifest in kept for file in manifest.files}
    assert set(cloud_storage.names(f"{bucket}/spool/segments/")) == listed
