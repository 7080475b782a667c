import signal
import subprocess
import sys

import pytest
from google.cloud.spanner_v1.database import Database

from emulator import connect


def _database(host: str, names: dict[str, str]) -> Database:
    found: Database = connect(host, names["project"]).instance(names["instance"]).database(names["database"])
    return found


@pytest.mark.long
def test_the_command_serves_a_scenario_by_the_names_it_prints_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "emulator", "scripted", "--seed", "3", "--seconds", "5", "--faults"]
    command += ["--placements", "2"]
    with subprocess.Popen([*command, "--dialect", "postgresql"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        names = dict(process.stdout.readline().strip().split("=", 1) for _ in range(5))
        with _database(names["SPANNER_EMULATOR_HOST"], names).snapshot() as snapshot:
            (found,) = snapshot.execute_sql("SELECT change_stream_name FROM information_schema.change_streams")
        assert found == [names["change_stream"]]
        with _database(names["SPANNER_EMULATOR_HOST"], names).snapshot() as snapshot:
            functions = [
                name for (name,) in snapshot.execute_sql("SELECT routine_name FROM information_schema.routines")
            ]
        assert "read_proto_bytes_everything_default" in functions
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(300) == 0
        finally:
            process.kill()


@pytest.mark.long
def test_the_command_explains_placements_of_the_wrong_mode() -> None:
    command = [sys.executable, "-m", "emulator", "scripted", "--mode", "IMMUTABLE_KEY_RANGE", "--placements", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "per_placement_tvf needs the partition mode MUTABLE_KEY_RANGE" in done.stderr
