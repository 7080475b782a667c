"""``make demo``: the main job, with a summary that compares both ends.

A workload commits to a sample database of the official emulator, whose change stream partitions split, merge and move
every few seconds; where neither an emulator nor a Docker engine is at hand, a scripted Spanner server takes its place.
``spanner-cdc run`` replicates it through the daemon and Spark into Datastream files. Then every event in the files is
held against the record of what was committed.
"""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import yaml

from connector.spool.reading import Spool
from emulator.demo.skipped import Judgement
from emulator.demo.source import Address, demo_source
from emulator.demo.verdict import Verdict, compare, delivered_events
from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.workload.tables import Dialect

_STANDSTILL_SECONDS = 180.0
"""A machine may be slow: only that nothing at all moves for so long ends the demo."""


class DemoError(Exception):
    """The demo could not be run; one line says why."""


def _say(text: str) -> None:
    click.echo(text, err=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _status(port: int) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return {}


def _churn(port: int) -> dict[str, int]:
    churn = _status(port).get("partition_churn", {})
    assert isinstance(churn, dict)
    return {str(kind): int(count) for kind, count in churn.items()}


@contextlib.contextmanager
def _service(config: Path, host: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "connector", "run", str(config), "--emulator-host", host]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)  # noqa: S603 (our own)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
            process.wait()


def _wait(
    what: str, process: subprocess.Popen[bytes], log: Path, done: Callable[[], bool], moved: Callable[[], object]
) -> None:
    """Waits while the service lives and, now and then, something moves."""
    before, since = moved(), time.monotonic()
    while not done():
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise DemoError(f"spanner-cdc run ended with code {process.returncode}: {' '.join(last)}")
        if (now := moved()) != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > _STANDSTILL_SECONDS:
            raise DemoError(f"{what} has stood still for {_STANDSTILL_SECONDS:.0f} s; see {log}")
        time.sleep(0.1)


def run(output: Path, *, mods: int, churn: int, dialect: Dialect, scripted: bool) -> Verdict:
    """Runs the demo, and returns how what was delivered compares with what was committed.

    Raises:
        DemoError: it could not be run.
        EmulatorNotFoundError: the emulator that the environment names does not answer.
        EmulatorFailedError: there is an emulator, and it does not start.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    log = output / "spanner-cdc.log"
    with demo_source(dialect, mods=mods, churn=churn, scripted=scripted) as source:
        _say(f"the demo runs against {source.story}")
        port = _free_port()
        config = _configured(output, source.address, port)
        with _service(config, source.address.host, log) as process:
            spool = Spool.at(output / "spool")

            def sealed() -> int:
                return spool.manifest(spool.latest()).watermark_high if spool.latest() > 0 else 0

            def size() -> int:
                return log.stat().st_size

            # Spark's start is no latency of the pipeline: delays count from then on.
            _wait("the start", process, log, lambda: b"spark_sink: ready" in log.read_bytes(), size)
            ready = time.time_ns()
            source.commit(mods, churn, lambda: sum(_churn(port).values()), _say)
            last = source.committed[-1].commit_timestamp_ns
            _say(f"committed {len(source.committed)} mods; waiting for the last of them")
            _wait("the delivery", process, log, lambda: sealed() >= last, sealed)
            crossed = _churn(port)
            process.send_signal(signal.SIGTERM)
            _wait_end(process, output, log)
        events = list(delivered_events(output / "events"))
        judgement = source.judge((event.identity[0] for event in events), _errors(log))
        verdict = compare(source.committed, events, ready=ready, judgement=judgement)
    _tell(verdict, judgement, crossed, output, source.story)
    if sum(crossed.values()) < churn:
        raise DemoError(f"only {sum(crossed.values())} splits, merges and moves were crossed, not {churn}")
    return verdict


def _errors(log: Path) -> list[str]:
    """The errors that the service has logged."""
    return [line for line in log.read_text(errors="replace").splitlines() if " ERROR " in line]


def _configured(output: Path, address: Address, port: int) -> Path:
    """Writes the demo's configuration."""
    config = output / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "source": {
                    "project": address.project,
                    "instance": address.instance,
                    "database": address.database,
                    "change_stream": address.change_stream,
                    "start": address.start,
                },
                "spool": {"path": str(output / "spool")},
                "sink": {"type": "files", "path": str(output / "events"), "rotate_interval": "0s"},
                "spark": {"master": "local[2]", "checkpoint": str(output / "checkpoint"), "trigger": "250ms"},
                "status": {"port": port},
                "drain_timeout": "10m",
            }
        )
    )
    return config


def _wait_end(process: subprocess.Popen[bytes], output: Path, log: Path) -> None:
    """Waits for the drain: the service bounds it, and as long as files or lines come it goes on."""

    def moved() -> tuple[int, int]:
        return sum(1 for _ in (output / "events").rglob("*")), log.stat().st_size

    before, since = moved(), time.monotonic()
    while process.poll() is None:
        if (now := moved()) != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > _STANDSTILL_SECONDS:
            raise DemoError(f"spanner-cdc run does not drain; see {log}")
        time.sleep(0.1)
    if process.returncode != 0:
        raise DemoError(f"spanner-cdc run ended with code {process.returncode}; see {log}")


def _tell(verdict: Verdict, judgement: Judgement, crossed: dict[str, int], output: Path, story: str) -> None:
    files = list((output / "events").rglob("*.jsonl"))
    p50, p99 = ("-" if delay is None else f"{delay:.0f}" for delay in (verdict.p50_ms, verdict.p99_ms))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(crossed.items()))
    click.echo(
        f"""
  committed mods             {verdict.committed:>10}
  delivered events           {verdict.delivered:>10}
  skipped by the emulator    {verdict.skipped:>10}
  lost                       {verdict.lost:>10}
  twice                      {verdict.twice:>10}
  never committed            {verdict.foreign:>10}
  epochs out of order        {verdict.out_of_order:>10}
  transactions split         {verdict.split_transactions:>10}
  partitions crossed         {sum(crossed.values()):>10}   ({kinds})
  commit to event, p50       {p50:>10} ms, of what was committed once both ends were ready and had caught up
  commit to event, p99       {p99:>10} ms
  files                      {len(files):>10}   below {output / "events"}
  source                     {story}

{_sentence(verdict)}"""
    )
    for skip in judgement.skipped:
        click.echo(f"skipped by the emulator, which a bounded query returns: the commit at {skip}")
    for reason in judgement.reasons:
        click.echo(f"lost: {reason}")


def _sentence(verdict: Verdict) -> str:
    if not verdict.good:
        return "NOT everything is right."
    if verdict.skipped:
        return "Everything that the emulator returned was delivered, once, in commit order."
    return "Everything committed was delivered, once, in commit order."


def _series(output: Path, times: int, once: Callable[[Path], Verdict]) -> bool:
    """Runs the demo so many times, and prints the sum; whether every run was good."""
    verdicts: list[Verdict] = []
    failed: list[str] = []
    for number in range(1, times + 1):
        _say(f"demo {number} of {times}")
        try:
            verdicts.append(once(output / f"run-{number}"))
        except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
            failed.append(f"demo {number}: {error}")
            click.echo(failed[-1], err=True)
    good = sum(verdict.good for verdict in verdicts)
    names = ("committed", "delivered", "skipped", "lost", "twice", "foreign", "out_of_order", "split_transactions")
    sums = ", ".join(f"{sum(getattr(v, name) for v in verdicts)} {name.replace('_', ' ')}" for name in names)
    with_skips = sum(verdict.skipped > 0 for verdict in verdicts)
    click.echo(f"\n{times} demos: {good} good, {with_skips} of them with a transaction skipped by the emulator; {sums}")
    for line in failed:
        click.echo(line)
    return good == times


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True)
@click.option("--mods", default=20_000, show_default=True, help="How many mods are committed, at least.")
@click.option("--churn", default=12, show_default=True, help="How many splits, merges and moves are crossed, at least.")
@click.option("--dialect", type=click.Choice(["googlesql", "postgresql"]), default="googlesql", show_default=True)
@click.option("--scripted", is_flag=True, help="Use the scripted server, whether or not there is an emulator.")
@click.option("--times", type=click.IntRange(min=1), default=1, help="Run it so many times, and print the sum.")
def main(output: Path, mods: int, churn: int, dialect: Dialect, times: int, *, scripted: bool) -> None:
    """Replicates a workload on the Spanner emulator into Datastream files, and compares both ends."""
    started = time.monotonic()

    def once(folder: Path) -> Verdict:
        return run(folder, mods=mods, churn=churn, dialect=dialect, scripted=scripted)

    try:
        good = once(output).good if times == 1 else _series(output, times, once)
    except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)
    _say(f"took {time.monotonic() - started:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
