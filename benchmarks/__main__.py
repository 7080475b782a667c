"""``make bench``: what it costs to read a change stream, against what it costs otherwise, in one run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import orjson

from benchmarks import result, wire
from benchmarks.plot import plot
from benchmarks.result import Result
from benchmarks.wire import Size

FOLDER = Path(__file__).parent
_SHORT = Size(20_000, 2)

Benchmark = Callable[[Size], Iterator[Result]]
BENCHMARKS: dict[str, Benchmark] = {
    "wire-to-arrow": wire.to_arrow,
    "wire-to-spool": wire.to_spool,
}


@click.command()
@click.option("--mods", default=100_000, show_default=True, help="Mods a round, of one record a message.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Only this one; may be repeated.")
@click.option("--short", is_flag=True, help="In little more than a minute; the figures are rough.")
def main(mods: int, rounds: int, only: tuple[str, ...], *, short: bool) -> None:
    """Prints a table, and writes results.json and results.svg beside this file."""
    size = _SHORT if short else Size(mods, rounds)
    results: list[Result] = []
    click.echo(result.head())
    for name in only or BENCHMARKS:
        for found in BENCHMARKS[name](size):
            results.append(found)
            click.echo(found)
    nodes = [found.to_node() for found in results]
    (FOLDER / "results.json").write_bytes(orjson.dumps(nodes, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if not plot(results, FOLDER / "results.svg"):
        click.echo("no plot: pip install 'spanner-cdc-spark[bench]'", err=True)


if __name__ == "__main__":
    main()
