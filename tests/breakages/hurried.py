"""``python -m tests.breakages.hurried``: the command ``spanner-cdc`` that raises alarms after a few seconds already."""

import connector.core.health.retries
import connector.daemon.states.watching
from connector import cli
from connector.core.timestamps import SECOND


def hurry() -> None:
    """Shortens the times after which what fails is an alarm."""
    connector.core.health.retries.LASTING = 3 * SECOND
    connector.core.health.retries._REPEATED = SECOND
    connector.core.health.retries.PROOF = SECOND
    connector.daemon.states.watching.INTERVAL = 0.5


if __name__ == "__main__":
    hurry()
    cli.main()
