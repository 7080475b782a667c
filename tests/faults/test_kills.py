"""A reader that is killed at random loses and duplicates nothing, and splits no transaction."""

import sys
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest

from connector.core.timestamps import format_rfc3339
from emulator import Workload
from tests.integration.commands import Background, configuration, manifests, reading, run
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load

pytestmark = pytest.mark.emulator


def await_seal(daemon: Background, spool: Path) -> None:
    before = len(manifests(spool))
    daemon.until(lambda: len(manifests(spool)) > before, "a seal")


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("kills", "dialect"),
    [
        (6, "googlesql"),
        pytest.param(25, "googlesql", marks=pytest.mark.slow),
        pytest.param(25, "postgresql", marks=pytest.mark.slow),
    ],
)
def test_every_committed_mod_is_sealed_once_and_in_order_through_kills_at_random_times(
    kills: int, dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    seed = time.time_ns() % 1_000_000
    sys.stdout.write(f"seed {seed}\n")
    random = Random(seed)
    sample = database(dialect=dialect)
    source = {"start": format_rfc3339(time.time_ns())}
    config = configuration(tmp_path, sample, source=source)
    workload = Workload(sample, seed=seed)
    resting = threading.Event()
    phases = list(islice(cycle(("while it seals", "while it starts", "while it seals", "while it reads")), kills))
    random.shuffle(phases)
    with load(workload, rate=80):
        for phase in phases:
            with reading(config, until_reading=phase != "while it starts") as daemon:
                if phase == "while it seals":
                    await_seal(daemon, tmp_path / "spool")
                resting.wait(random.uniform(0.0, 1.0))
                daemon.stop(SIGKILL)
    config = configuration(tmp_path, sample, source={**source, "end": last_commit(workload)})
    ended = run("read", config)
    assert ended.code == 0, ended.err
    assert " ERROR " not in ended.err
    kept = assert_delivered(tmp_path / "spool", workload.committed, official=sample)
    writers = {manifest.writer for manifest in kept}
    assert len(writers) > kills // 3, "too few kills after a seal"
    listed = {Path(file.path).name for manifest in kept for file in manifest.files}
    assert {path.name for path in (tmp_path / "spool" / "segments").iterdir()} == listed
    sys.stdout.write(
        f"{kills} kills: {len(workload.committed)} mods, {len(kept)} epochs of {len(writers)} writers,"
        f" {sum(manifest.rows for manifest in kept)} rows\n"
    )
