"""A session of the connector's own processes shows no secret to other users of the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SESSION = """
import os
import sys
from pathlib import Path
from connector.config.sections import SparkConfig
from spark_sink.session import session, stop_session
from tests.soak.process_tree import command, process_tree

secrets = {"spark.hadoop.fs.s3a.secret.key": "hush-1", "spark.sql.catalog.lake.credential": "id:hush-2"}
others = {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "700m"}
config = SparkConfig(master="local[1]", config={**secrets, **others})
spark = session(config, Path(sys.argv[1]), verbose=False)
print(*[spark.conf.get(name) for name in config.config], spark.range(4).count())
print(*map(command, process_tree(os.getpid())))
stop_session(spark)
"""


@pytest.mark.spark
def test_secrets_of_spark_are_in_no_process_argument_and_the_session_has_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SESSION)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=True, timeout=300, env=environment
    )
    values, arguments = done.stdout.splitlines()[:2]
    assert values == "hush-1 id:hush-2 3 700m 4"
    assert "spark.sql.shuffle.partitions=3" in arguments
    assert "hush" not in arguments
