"""Stands in for the daemon: ``stub_daemon.py CONFIG`` fills the spool as its environment says, until its input ends."""

import json
import os
import sys
from pathlib import Path

from connector.errors import TRANSIENT, SpoolInUseError
from connector.spool.reading import Spool
from connector.spool.writing import sole_writer
from tests.spark_sink.spools import SpoolMaker


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    if config["source"]["database"] == "broken":
        sys.stderr.write("starting\nspanner-cdc: database broken is not there. Create it.\n")
        sys.exit(1)
    path = Path(config["spool"]["path"])
    with sole_writer(Spool.at(path)):
        (path / "writers.txt").open("a").write(f"{os.getpid()} {json.dumps(config['source'], sort_keys=True)}\n")
        maker = SpoolMaker(path, reopen=True)
        maker.fill(2)
        if config["source"].get("end"):
            return
        while os.read(0, 4096):
            pass


if __name__ == "__main__":
    try:
        main()
    except SpoolInUseError as error:
        sys.stderr.write(f"spanner-cdc: {error}\n")
        sys.exit(TRANSIENT)
