"""``python -m tests.breakages``: breaks a running service in every way, and writes docs/proof/breakages.md."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import click

from tests.breakages import destinations, source, storage
from tests.breakages.breakage import Breakage, Exercised
from tests.breakages.night import keep
from tests.breakages.page import PAGE, page

BREAKAGES = (*source.BREAKAGES, *storage.BREAKAGES, *destinations.BREAKAGES)


@click.command()
@click.option("--only", help="Breakages whose names contain this; the page keeps the others.")
@click.option("--draw", type=click.IntRange(1), help="So many, drawn at random; the page keeps the others.")
@click.option("--seed", default=0, show_default=True, help="Of the draw.")
@click.option(
    "--night",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for what a person sees of each, numbered and without its name; answers.txt has the names.",
)
@click.option("--at-a-time", default=3, show_default=True, help="How many services are broken at a time.")
def main(*, only: str | None, draw: int | None, seed: int, night: Path | None, at_a_time: int) -> None:
    """Breaks a running service in every way, and writes the page."""
    chosen = [breakage for breakage in BREAKAGES if only is None or only.lower() in breakage.name.lower()]
    if draw is not None:
        chosen = drawn(chosen, draw, seed)
    failed = False
    exercised = []
    for one in exercise(chosen, at_a_time):
        faults = one.faults()
        failed = failed or bool(faults)
        exercised.append(one)
        if night is not None:
            keep(one, night, len(exercised))
        click.echo(f"{one.breakage.name}: {one.seconds:.0f} s: {'; '.join(faults) or 'named'}")
        if faults:
            click.echo(
                f"{one.seen.headline} {one.seen.alarms} {one.seen.ready}\n{one.seen.status}\n{one.seen.log[-3000:]}"
            )
    before = PAGE.read_text() if PAGE.exists() else ""
    PAGE.write_text(page([breakage.name for breakage in BREAKAGES], exercised, before))
    sys.exit(1 if failed else 0)


def drawn(breakages: Sequence[Breakage], number: int, seed: int) -> list[Breakage]:
    """Breakages that are drawn at random: the same ones, in the same order, for the same seed."""
    return Random(seed).sample(breakages, min(number, len(breakages)))


def exercise(breakages: Sequence[Breakage], at_a_time: int) -> Iterator[Exercised]:
    """Exercises breakages, some at a time; yields them in their order."""
    folder = Path(tempfile.mkdtemp(prefix="breakages-"))
    folders = [folder / str(number) for number in range(len(breakages))]
    for each in folders:
        each.mkdir()
    with ThreadPoolExecutor(at_a_time, thread_name_prefix="breakage") as threads:
        yield from threads.map(lambda pair: pair[0].exercise(pair[1]), zip(breakages, folders, strict=True))


if __name__ == "__main__":
    main()
