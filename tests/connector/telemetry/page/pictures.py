"""``python -m tests.connector.telemetry.page.pictures FOLDER``: a picture of the page in each state, with each alarm.

Those that docs/reference/status-page.md shows are written with the name that it uses.
"""

import sys
import tempfile
from pathlib import Path

from tests.connector.telemetry.page.browser import opened
from tests.connector.telemetry.page.samples import ALARMS, STATES, running, young


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        temporary = Path(profile)
        for state in STATES:
            name = state.lower().replace(" ", "-")
            opened(running(state), temporary, picture=folder / f"{name}.png", width=1000, height=1180)
        for alarm in ALARMS:
            picture = folder / f"alarm-{alarm.replace('_', '-')}.png"
            opened(running("Running", alarm), temporary, picture=picture, width=1000, height=1250)
        opened(young(), temporary, picture=folder / "young.png", width=1000, height=900)
        dark = running("Running", "tables_stopped", "consumer_behind")
        opened(dark, temporary, picture=folder / "dark.png", dark=True, width=1000, height=1300)
        opened(running("Paused"), temporary, picture=folder / "phone.png", width=500, height=1900)


if __name__ == "__main__":
    main()
