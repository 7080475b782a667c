"""A night's exercise: what a person on call sees of a breakage, kept without its name."""

from pathlib import Path

from tests.breakages.breakage import Exercised
from tests.connector.telemetry.page.browser import CHROMIUM, opened

_NO_PAGE = "The page does not answer.\n"


def keep(one: Exercised, folder: Path, number: int) -> None:
    """Writes the picture of the page, or that there is none, and what ``status`` printed; the name into answers.txt.

    Args:
        one: the breakage that was exercised.
        folder: of the whole exercise; it is made.
        number: of the breakage in it, the beginning of its files' names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = folder / f"{number:02}"
    if one.seen.page is None or CHROMIUM is None:
        start.with_suffix(".page.txt").write_text(_NO_PAGE if one.seen.page is None else one.seen.headline)
    else:
        profile = one.folder / "browser"
        profile.mkdir()
        opened(dict(one.seen.page), profile, picture=start.with_suffix(".png").absolute())
    hidden = one.seen.status.replace(str(one.folder), "")
    start.with_suffix(".status.txt").write_text(f"{hidden}\nexit code {one.seen.status_code}\n")
    with (folder / "answers.txt").open("a") as answers:
        answers.write(f"{number:02} {one.seconds:.0f} s: {one.breakage.name}. {one.breakage.done}\n")
