"""``make demo``: the main job on the official emulator, with a summary that compares both ends.

A workload commits to a sample database whose change stream partitions split, merge and move every few seconds;
``spanner-cdc run`` replicates it through the daemon and Spark into Datastream files. Then every event in the files is
held against the workload's own record of what it committed.
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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from connector.spool import Spool
from emulator.faults import EmulatorFailedError, EmulatorNotFoundError
from emulator.launcher import find_or_start
from emulator.sample import SampleDatabase
from emulator.workload import CommittedMod, Workload

CHURN_SECONDS = 2
_LEAST_SECONDS, _MOST_SECONDS = 40, 120
_START_SECONDS, _DELIVERY_SECONDS = 90, 90

Identity = tuple[int, str, str, str]
"""Commit timestamp, table, mod type and keys of a mod."""


class DemoError(Exception):
    """The demo could not be run; one line says why."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event as it was found in a file; times are nanoseconds since the epoch."""

    identity: Identity
    uuid: str
    order: tuple[int, str, int, int]
    transaction: str
    epoch: int
    visible: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out at the end, compared with what was committed."""

    committed: int
    delivered: int
    lost: int
    twice: int
    foreign: int
    out_of_order: int
    split_transactions: int
    p50_ms: float
    p99_ms: float

    @property
    def good(self) -> bool:
        """Whether everything committed was delivered, once, in order."""
        return self.committed == self.delivered and not (
            self.lost or self.twice or self.foreign or self.out_of_order or self.split_transactions
        )


def committed_identity(mod: CommittedMod) -> Identity:
    """What identifies a committed mod."""
    keys = {name: str(value) for name, value in mod.keys.items()}
    return (mod.commit_timestamp_ns, mod.table, mod.mod_type, json.dumps(keys, sort_keys=True))


def delivered_events(root: Path) -> Iterator[Delivered]:
    """The events of every file below ``root``."""
    for path in root.rglob("*.jsonl"):
        visible = path.stat().st_mtime_ns
        epoch = int(path.stem.split("_")[-2])
        for line in path.read_bytes().splitlines():
            event = json.loads(line)
            metadata = event["source_metadata"]
            keys = {name: str(event["payload"][name]) for name in metadata["primary_keys"]}
            _, at, sequence, index = event["sort_keys"]
            yield Delivered(
                identity=(at, event["object"], metadata["mod_type"], json.dumps(keys, sort_keys=True)),
                uuid=event["uuid"],
                order=(at, metadata["server_transaction_id"], int(sequence), index),
                transaction=metadata["server_transaction_id"],
                epoch=epoch,
                visible=visible,
            )


def compare(committed: list[CommittedMod], events: list[Delivered]) -> Verdict:
    """Holds the events against what was committed."""
    wanted = Counter(committed_identity(mod) for mod in committed)
    found = Counter(event.identity for event in events)
    epochs: dict[str, set[int]] = {}
    for event in events:
        epochs.setdefault(event.transaction, set()).add(event.epoch)
    by_epoch = sorted(events, key=lambda event: event.epoch)
    last: dict[int, tuple[int, str, int, int]] = {}
    for event in by_epoch:
        last[event.epoch] = max(last.get(event.epoch, event.order), event.order)
    out_of_order = 0
    before = (0, "", 0, 0)
    for epoch in sorted(last):
        first = min(event.order for event in by_epoch if event.epoch == epoch)
        out_of_order += first <= before
        before = last[epoch]
    delays = sorted((event.visible - event.identity[0]) / 1e6 for event in events) or [0.0]
    return Verdict(
        committed=wanted.total(),
        delivered=len(events),
        lost=(wanted - found).total(),
        twice=len(events) - len({event.uuid for event in events}),
        foreign=(found - wanted).total(),
        out_of_order=out_of_order,
        split_transactions=sum(1 for numbers in epochs.values() if len(numbers) > 1),
        p50_ms=delays[len(delays) // 2],
        p99_ms=delays[min(len(delays) * 99 // 100, len(delays) - 1)],
    )


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


def run(output: Path, *, mods: int, churn: int, dialect: str) -> Verdict:
    """Runs the demo, and returns how what was delivered compares with what was committed.

    Raises:
        DemoError: it could not be run.
        EmulatorNotFoundError: there is no emulator, and how to get one.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    log = output / "spanner-cdc.log"
    with find_or_start(churn_seconds=CHURN_SECONDS) as emulator:
        _say(f"Spanner emulator at {emulator.host} ({emulator.origin})")
        database = SampleDatabase.create(emulator.host, dialect=dialect)
        port = _free_port()
        config = output / "config.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "source": {
                        "project": database.project,
                        "instance": database.instance,
                        "database": database.database_id,
                        "change_stream": database.change_stream,
                        "start": "now",
                    },
                    "spool": {"path": str(output / "spool")},
                    "sink": {"type": "files", "path": str(output / "events"), "rotate_interval": "0s"},
                    "spark": {"master": "local[2]", "checkpoint": str(output / "checkpoint"), "trigger": "250ms"},
                    "status": {"port": port},
                }
            )
        )
        with _service(config, emulator.host, log) as process:
            spool = Spool.at(output / "spool")
            # Spark's start is no latency of the pipeline: the workload begins when both ends are ready.
            _wait("the start", _START_SECONDS, process, log, lambda: b"spark_sink: ready" in log.read_bytes())
            workload = Workload(database, seed=1, average_size=40, rows_per_table=1000, run_length=20)
            _say(f"committing at least {mods} mods; partitions split, merge and move every {CHURN_SECONDS} s or so")
            _commit(workload, mods, churn, port)
            last = workload.committed[-1].commit_timestamp_ns
            _say(f"committed {len(workload.committed)} mods; waiting for the last of them")
            _wait(
                "the delivery", _DELIVERY_SECONDS, process, log,
                lambda: spool.latest() > 0 and spool.manifest(spool.latest()).watermark_high >= last,
            )  # fmt: skip
            crossed = _churn(port)
            process.send_signal(signal.SIGTERM)
            _wait_end(process, log)
    verdict = compare(workload.committed, list(delivered_events(output / "events")))
    _tell(verdict, crossed, output)
    if sum(crossed.values()) < churn:
        raise DemoError(f"only {sum(crossed.values())} splits, merges and moves were crossed, not {churn}")
    return verdict


def _commit(workload: Workload, mods: int, churn: int, port: int) -> None:
    started = time.monotonic()
    told = started
    while True:
        rate = mods / _LEAST_SECONDS * 1.1 if len(workload.committed) < mods else mods / _LEAST_SECONDS / 20
        workload.run(seconds=1.0, rate=rate)
        now = time.monotonic()
        if now - told > 10:
            told = now
            _say(f"  {len(workload.committed)} mods committed, {sum(_churn(port).values())} splits, merges and moves")
        enough = len(workload.committed) >= mods and sum(_churn(port).values()) >= churn
        if enough or now - started > _MOST_SECONDS:
            return


def _wait_end(process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        code = process.wait(_DELIVERY_SECONDS)
    except subprocess.TimeoutExpired:
        raise DemoError(f"spanner-cdc run did not drain within {_DELIVERY_SECONDS} s; see {log}") from None
    if code != 0:
        raise DemoError(f"spanner-cdc run ended with code {code}; see {log}")


def _tell(verdict: Verdict, crossed: dict[str, int], output: Path) -> None:
    files = list((output / "events").rglob("*.jsonl"))
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
  commit to event, p50       {verdict.p50_ms:>10.0f} ms
  commit to event, p99       {verdict.p99_ms:>10.0f} ms
  files                      {len(files):>10}   below {output / "events"}

{"Everything committed was delivered, once, in commit order." if verdict.good else "NOT everything is right."}"""
    )


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True)
@click.option("--mods", default=20_000, show_default=True, help="How many mods are committed, at least.")
@click.option("--churn", default=12, show_default=True, help="How many splits, merges and moves are crossed, at least.")
@click.option("--dialect", type=click.Choice(["googlesql", "postgresql"]), default="googlesql", show_default=True)
def main(output: Path, mods: int, churn: int, dialect: str) -> None:
    """Replicates a workload on the Spanner emulator into Datastream files, and compares both ends."""
    started = time.monotonic()
    try:
        verdict = run(output, mods=mods, churn=churn, dialect=dialect)
    except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)
    _say(f"took {time.monotonic() - started:.0f} s")
    sys.exit(0 if verdict.good else 1)


if __name__ == "__main__":
    main()
