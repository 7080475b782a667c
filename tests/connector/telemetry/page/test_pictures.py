"""Pictures of the page in each state and with each alarm, as the docs show them."""

import re
from pathlib import Path

import pytest

from connector.core.health.states import StreamState
from tests.connector.telemetry.page.browser import CHROMIUM
from tests.connector.telemetry.page.pictures import SHOTS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "status-page.md"
IN_DOCS = re.findall(r"images/([\w-]+)\.png", PAGE.read_text())


def size(picture: Path) -> tuple[int, int]:
    """The width and height in a PNG file's header."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


@pytest.mark.long(but=3)
@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
@pytest.mark.parametrize(
    "name", [name if name in IN_DOCS else pytest.param(name, marks=pytest.mark.slow) for name in SHOTS]
)
def test_a_picture_is_taken_of_each_state_and_alarm(name: str, tmp_path: Path) -> None:
    shot, picture = SHOTS[name], tmp_path / "picture.png"
    shot.take(picture, tmp_path)
    assert size(picture) == (shot.width, shot.height)
    assert picture.stat().st_size > 20_000  # an empty page is far smaller


def test_the_pictures_of_the_docs_are_among_them_and_are_there() -> None:
    assert IN_DOCS
    for name in IN_DOCS:
        assert size(PAGE.parent / "images" / f"{name}.png") == (SHOTS[name].width, SHOTS[name].height)
    assert {state.value.lower().replace(" ", "-") for state in StreamState} <= SHOTS.keys()
