"""``make bench``: measures the cost of reading a change stream, and compares it with other ways, in one run."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click
import orjson

from benchmarks import idle, memory, rows, snapshot, spark, wire, workers
from benchmarks.destinations.backfill import backfill
from benchmarks.destinations.merging import merge_into
from benchmarks.destinations.spanner_sink import spool_to_spanner
from benchmarks.executors.windows import windows
from benchmarks.latencies import events, files
from benchmarks.measure import result
from benchmarks.measure.plot import plot
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.measure.subject import FailedError
from connector.process import cores

FOLDER = Path(__file__).parent
_SHORT = Size(10_000, 2, 0.3, seconds=4.0, grown=10_000, cells=(("googlesql", "16/msg"),), hurried=True)

Benchmark = Callable[[Size], Iterator[Result]]
_IN_SHORT = ("wire-to-arrow", "wire-to-spool", "idle-partitions", "latency", "memory")
"""The benchmarks of the short form: Spark and workers take too long to start."""


def _latency(size: Size) -> Iterator[Result]:
    """From the commit to the event and to the file, and the price of short heartbeats; the latter not in short."""
    yield from events.commit_to_event(size)
    if not size.hurried:
        yield from files.commit_to_file(size)
        yield from idle.quick_heartbeats(size)


HEADLINE = "wire-to-arrow"
BENCHMARKS: dict[str, Benchmark] = {
    HEADLINE: wire.to_arrow,
    "wire-to-spool": wire.to_spool,
    "wire-to-spark-noop": spark.wire_to_noop,
    "spool-to-spark-noop": spark.spool_to_noop,
    "spool-to-jsonl": spark.spool_to_jsonl,
    "spool-to-avro": spark.spool_to_avro,
    "arrow-to-bigquery-rows": rows.to_bigquery,
    "spool-to-bigquery": spark.spool_to_bigquery,
    "workers": workers.workers,
    "executors": windows,
    "idle-partitions": idle.idle,
    "status-clients": idle.status_clients,
    "latency": _latency,
    "seal-to-sink": events.seal_to_sink,
    "snapshot-read": snapshot.read,
    "backfill": backfill,
    "merge-into": merge_into,
    "spool-to-spanner": spool_to_spanner,
    "memory": memory.growth,
}


@click.command()
@click.option(
    "--mods",
    default=100_000,
    show_default=True,
    help="Mods in a round with one record in each message; twice as many for the headline.",
)
@click.option("--rounds", default=5, show_default=True, help="Rounds of the headline; the others have half as many.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run only this benchmark; may be repeated."
)
@click.option("--short", is_flag=True, help="Run a short form in little more than a minute; the figures are rough.")
@click.option("--growth", type=int, help="The most mods of the growing backlog; 4 times --mods by default.")
def main(mods: int, rounds: int, only: tuple[str, ...], growth: int | None, *, short: bool) -> None:
    """Runs the benchmarks and prints a table; all of them in full write results.json and results.svg, too."""
    size = _SHORT if short else Size(mods, rounds, grown=growth or 4 * mods)
    fewer = replace(size, rounds=max(size.rounds // 2, 1))
    longer = size if short else replace(size, mods=2 * mods, baseline_share=size.baseline_share / 2)
    results: list[Result] = []
    failed = False
    click.echo(_machine())
    click.echo(result.head())
    for name in only or (_IN_SHORT if short else BENCHMARKS):
        try:
            for found in BENCHMARKS[name](longer if name == HEADLINE else fewer):
                results.append(found)
                click.echo(found)
        except FailedError as error:
            failed = True
            click.echo(f"{name} failed: {error}", err=True)
        if not (only or short):  # a part must not replace the whole
            _write(results)
    if not (only or short or plot(results, FOLDER / "results.svg")):
        click.echo("no plot: pip install 'spanner-cdc-spark[bench]'", err=True)
    sys.exit(failed)


def _machine() -> str:
    """The machine, on which the figures depend; a load above 1 means that other programs are running."""
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("grpcio", "protobuf", "pyarrow", "google-cloud-spanner")
    )
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg()[:2])
    return f"Python {platform.python_version()}, {versions}; {cores()} cores, load {load}"


def _write(results: list[Result]) -> None:
    nodes = [found.to_node() for found in results]
    (FOLDER / "results.json").write_bytes(orjson.dumps(nodes, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main()
