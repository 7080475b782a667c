import os
import signal
import subprocess
import sys

import pytest

from emulator import Emulator, connect

pytestmark = pytest.mark.emulator


@pytest.mark.long
def test_the_command_commits_to_a_database_by_the_names_it_prints_until_it_is_interrupted(emulator: Emulator) -> None:
    command = [sys.executable, "-m", "emulator", "workload", "--database", "shown", "--rate", "1000"]
    environment = {**os.environ, "SPANNER_EMULATOR_HOST": emulator.host}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        names = dict(process.stdout.readline().strip().split("=", 1) for _ in range(5))
        assert (names["SPANNER_EMULATOR_HOST"], names["database"]) == (emulator.host, "shown")
        client = connect(names["SPANNER_EMULATOR_HOST"], names["project"])
        database = client.instance(names["instance"]).database(names["database"])
        counted = 0
        while not counted:
            with database.snapshot() as snapshot:
                ((counted,),) = snapshot.execute_sql("SELECT COUNT(*) FROM Singers")
        again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert again.returncode == 1
        assert again.stderr.startswith("emulator: 409 ")
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    database.drop()
