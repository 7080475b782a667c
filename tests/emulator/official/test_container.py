import shutil
import subprocess

import pytest

from emulator import SampleDatabase, Workload, start_container
from emulator.official.connection import answers
from tests.emulator.stream_reader import now, read_all


def _engine_answers() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        return subprocess.run([docker, "info"], capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.container
@pytest.mark.emulator
def test_an_emulator_runs_in_a_container_with_its_settings_and_ends_with_it() -> None:
    if not _engine_answers():
        pytest.skip("no Docker engine answers")
    with start_container(churn_seconds=1) as emulator:
        assert emulator.origin == "container"
        sample = SampleDatabase.create(emulator.host)
        start = now(sample)
        workload = Workload(sample, seed=3)
        workload.run(seconds=3.5, rate=100.0)
        partitions: set[str | None] = set()
        assert len(list(read_all(sample, start, now(sample), partitions))) == len(workload.committed)
        assert len(partitions) > 4, "partitions live 20 s and more without the setting"
    assert not answers(emulator.host, seconds=0.5)
