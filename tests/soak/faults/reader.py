"""``python -m tests.soak.faults.reader``: a worker of the daemon, with what the environment says befalling it."""

from connector.workers.worker import main
from tests.soak.faults import patches
from tests.soak.faults.fault import Trouble

if __name__ == "__main__":
    patches.hurry()
    patches.take_columns(Trouble.of_environment())
    main()
