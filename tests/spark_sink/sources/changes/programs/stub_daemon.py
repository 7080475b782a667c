"""Stands in for the daemon: ``stub_daemon.py [--until-now] CONFIG`` fills the spool until its end or its input's.

The database's name says what else it does: ``broken`` fails, and ``stopped`` ends before its end the first time, as
after a signal.
"""

import json
import os
import sys
import time
from pathlib import Path

from connector.core.health.states import END_REACHED, NEVER, StreamState
from connector.errors import TRANSIENT, SpoolInUseError
from connector.spool.lifecycle import write_state
from connector.spool.reading import Spool
from connector.spool.writing import sole_writer
from tests.spark_sink.spools import SpoolMaker


def main() -> None:
    config = json.loads(Path(sys.argv[-1]).read_text())
    database = config["source"]["database"]
    if database == "broken":
        sys.stderr.write("starting\nspanner-cdc: database broken is not there. Create it.\n")
        sys.exit(1)
    path = Path(config["spool"]["path"])
    with sole_writer(Spool.at(path)):
        (path / "writers.txt").open("a").write(f"{os.getpid()} {json.dumps(config['source'], sort_keys=True)}\n")
        maker = SpoolMaker(path, reopen=True)
        is_stopped = database == "stopped" and maker.spool.latest() == 0
        maker.fill(2)
        if config["source"].get("end") or "--until-now" in sys.argv:
            reason = "the daemon was stopped" if is_stopped else END_REACHED
            write_state(maker.spool, NEVER.to(StreamState.NOT_STARTED, time.time_ns(), reason=reason))
            return
        while os.read(0, 4096):
            pass


if __name__ == "__main__":
    try:
        main()
    except SpoolInUseError as error:
        sys.stderr.write(f"spanner-cdc: {error}\n")
        sys.exit(TRANSIENT)
