"""``python -m tests.soak.faults.reader``: a worker of the daemon with the faults in its environment."""

from connector.spanner.workers.worker import main
from tests.soak.faults import patches
from tests.soak.faults.process_faults import ProcessFaults

if __name__ == "__main__":
    patches.hurry()
    patches.decode_as_columns(ProcessFaults.of_environment())
    main()
