"""``python -m tests.soak.troubled_reader``: a worker of the daemon, with what the environment says befalling it."""

from connector.worker import main
from tests.soak import patches
from tests.soak.trouble import Trouble

if __name__ == "__main__":
    patches.hurry()
    patches.take_columns(Trouble.of_environment())
    main()
