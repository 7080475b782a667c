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
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from connector.spool import Spool
from connector.timestamps import SECOND, format_rfc3339, parse
from emulator.demo_source import Address, demo_source
from emulator.faults import EmulatorFailedError, EmulatorNotFoundError
from emulator.tables import Dialect
from emulator.verdict import Verdict, compare, delivered_events, lost_commits

_START_SECONDS, _DELIVERY_SECONDS = 90, 90


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


def _wait(what: str, seconds: float, process: subprocess.Popen[bytes], log: Path, done: object) -> None:
    assert callable(done)
    deadline = time.monotonic() + seconds
    while not done():
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise DemoError(f"spanner-cdc run ended with code {process.returncode}: {' '.join(last)}")
        if time.monotonic() > deadline:
            raise DemoError(f"{what} took more than {seconds:.0f} s; see {log}")
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
            # Spark's start is no latency of the pipeline: delays count from then on.
            _wait("the start", _START_SECONDS, process, log, lambda: b"spark_sink: ready" in log.read_bytes())
            ready = time.time_ns()
            source.commit(mods, churn, lambda: sum(_churn(port).values()), _say)
            last = source.committed[-1].commit_timestamp_ns
            _say(f"committed {len(source.committed)} mods; waiting for the last of them")
            _wait(
                "the delivery", _DELIVERY_SECONDS, process, log,
                lambda: spool.latest() > 0 and spool.manifest(spool.latest()).watermark_high >= last,
            )  # fmt: skip
            crossed = _churn(port)
            process.send_signal(signal.SIGTERM)
            _wait_end(process, log)
        events = list(delivered_events(output / "events"))
        verdict = compare(source.committed, events, ready=ready)
        if verdict.lost:
            _ask_again(source.address, lost_commits(source.committed, events))
    _tell(verdict, crossed, output, source.story)
    if sum(crossed.values()) < churn:
        raise DemoError(f"only {sum(crossed.values())} splits, merges and moves were crossed, not {churn}")
    return verdict


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
            }
        )
    )
    return config


def _wait_end(process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        code = process.wait(_DELIVERY_SECONDS)
    except subprocess.TimeoutExpired:
        raise DemoError(f"spanner-cdc run did not drain within {_DELIVERY_SECONDS} s; see {log}") from None
    if code != 0:
        raise DemoError(f"spanner-cdc run ended with code {code}; see {log}")


def _ask_again(address: Address, lost: list[int]) -> None:
    """Reads the change stream anew where something is lost, and says whether it is there: the emulator may skip it."""
    command = [sys.executable, "-m", "connector", "tail", "--emulator-host", address.host]
    command += ["--project", address.project, "--instance", address.instance, "--database", address.database]
    command += ["--change-stream", address.change_stream]
    command += ["--start", format_rfc3339(lost[0] - SECOND), "--end", format_rfc3339(lost[-1])]
    done = subprocess.run(command, capture_output=True, timeout=_DELIVERY_SECONDS, check=False)  # noqa: S603 (our own)
    found = {parse(json.loads(line)["source_metadata"]["commit_timestamp"]) for line in done.stdout.splitlines()}
    _say(
        f"lost: {len(lost)} transactions, from {format_rfc3339(lost[0])} to {format_rfc3339(lost[-1])};"
        f" asked again, the change stream gives {len(found.intersection(lost))} of them"
    )


def _tell(verdict: Verdict, crossed: dict[str, int], output: Path, story: str) -> None:
    files = list((output / "events").rglob("*.jsonl"))
    p50, p99 = ("-" if delay is None else f"{delay:.0f}" for delay in (verdict.p50_ms, verdict.p99_ms))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(crossed.items()))
    click.echo(
        f"""
  committed mods             {verdict.committed:>10}
  delivered events           {verdict.delivered:>10}
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

{"Everything committed was delivered, once, in commit order." if verdict.good else "NOT everything is right."}"""
    )


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True)
@click.option("--mods", default=20_000, show_default=True, help="How many mods are committed, at least.")
@click.option("--churn", default=12, show_default=True, help="How many splits, merges and moves are crossed, at least.")
@click.option("--dialect", type=click.Choice(["googlesql", "postgresql"]), default="googlesql", show_default=True)
@click.option("--scripted", is_flag=True, help="Use the scripted server, whether or not there is an emulator.")
def main(output: Path, mods: int, churn: int, dialect: Dialect, *, scripted: bool) -> None:
    """Replicates a workload on the Spanner emulator into Datastream files, and compares both ends."""
    started = time.monotonic()
    try:
        verdict = run(output, mods=mods, churn=churn, dialect=dialect, scripted=scripted)
    except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)
    _say(f"took {time.monotonic() - started:.0f} s")
    sys.exit(0 if verdict.good else 1)


if __name__ == "__main__":
    main()
