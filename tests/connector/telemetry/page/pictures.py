"""``python -m tests.connector.telemetry.page.pictures FOLDER``: a picture of the page in each state, with each alarm.

Those that docs/reference/status-page.md shows are written with the name that it uses.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.connector.telemetry.page.browser import opened
from tests.connector.telemetry.page.samples import ALARMS, STATES, running, young


class Shot(NamedTuple):
    """A picture to take: the page, and its screen."""

    status: dict[str, Any]
    width: int = 1000
    height: int = 1250
    dark: bool = False

    def take(self, picture: Path, profile: Path) -> None:
        """Writes the picture; the browser's profile is a folder that may be removed."""
        opened(self.status, profile, picture=picture, width=self.width, height=self.height, dark=self.dark)


SHOTS: dict[str, Shot] = {
    **{state.lower().replace(" ", "-"): Shot(running(state), height=1180) for state in STATES},
    **{f"alarm-{alarm.replace('_', '-')}": Shot(running("Running", alarm)) for alarm in ALARMS},
    "young": Shot(young(), height=900),
    "dark": Shot(running("Running", "tables_stopped", "consumer_behind"), height=1300, dark=True),
    "phone": Shot(running("Paused"), width=500, height=1900),
}


def main() -> None:
    """Takes all of them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        for name, shot in SHOTS.items():
            shot.take(folder / f"{name}.png", Path(profile))


if __name__ == "__main__":
    main()
