"""``make bench``: from the wire to Arrow, against google-cloud-spanner's rows turned into dicts, in one run.

Rounds of the one and the other are interleaved, and ratios are told: these machines are shared, and absolute times lie.
The replay server is grpc-python's, which serves some 20,000 messages a second: at one record a message it bounds our
reader, so wall ratios there are a lower bound and CPU ratios tell more.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import click
import orjson
import pyarrow as pa
from google.auth.credentials import AnonymousCredentials
from google.cloud import spanner

from benchmarks.messages import FRAMINGS, answer
from benchmarks.replay import replaying
from connector.client import SpannerClient
from connector.decode import decoder
from connector.dialects import DIALECTS, IMMUTABLE
from connector.envelope import EnvelopeBuilder, Source
from connector.records import DataChangeRecord
from connector.rows import RowAssembler
from connector.schemas import SchemaRegistry

_DATABASE = "projects/p/instances/instance/databases/d"
_FLUSH_ROWS = 5000
Measure = tuple[float, float]
"""Seconds of wall clock and of CPU."""


def _timed(work: Callable[[], int], expected: int) -> Measure:
    wall, cpu = time.perf_counter(), time.process_time()
    mods = work()
    assert mods == expected, f"{mods} mods came, not {expected}"
    return time.perf_counter() - wall, time.process_time() - cpu


def _ours(host: str, dialect: str) -> int:
    return asyncio.run(_read(host, dialect))


async def _read(host: str, dialect: str) -> int:
    named = {found.name: found for found in DIALECTS.values()}[dialect]
    decode, assembler, registry = decoder(named, IMMUTABLE), RowAssembler(), SchemaRegistry()
    envelope = EnvelopeBuilder(Source("p", "instance", "d", "S", "d"), stream_name=None, read_method="spanner-cdc")
    held: list[DataChangeRecord] = []
    rows = pending = 0

    def flush() -> int:
        batch = envelope.build(held, registry, 1)
        held.clear()
        return int(batch.num_rows)

    client = SpannerClient(_DATABASE, emulator_host=host)
    async with client.connected(), aclosing(client.stream("SELECT 1", {})) as messages:
        async for message in messages:
            for (value,) in assembler.rows(message, columns=None):
                for record in decode(value, 0):
                    if isinstance(record, DataChangeRecord):
                        held.append(record)
                        pending += len(record.mods)
            if pending >= _FLUSH_ROWS:
                rows, pending = rows + flush(), 0
    return rows + flush() if held else rows


def _baseline(host: str, dialect: str) -> int:
    client = spanner.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": host},
        disable_builtin_metrics=True,
    )
    database = client.instance("instance").database("d")
    rows = 0
    events: list[dict[str, object]] = []
    with database.snapshot() as snapshot:
        for row in snapshot.execute_sql("SELECT 1"):
            events += _dicts(row[0], dialect)
            if len(events) >= _FLUSH_ROWS:
                rows += pa.RecordBatch.from_pylist(events).num_rows
                events = []
    return rows + (pa.RecordBatch.from_pylist(events).num_rows if events else 0)


def _dicts(change: object, dialect: str) -> list[dict[str, object]]:
    if dialect == "googlesql":
        assert isinstance(change, list)
        names = (
            "commit_timestamp", "record_sequence", "server_transaction_id", "is_last", "table_name", "column_types",
            "mods", "mod_type", "value_capture_type", "records", "partitions", "transaction_tag", "is_system",
        )  # fmt: skip
        records = [dict(zip(names, data, strict=True)) for (data_records, _, _) in change for data in data_records]
        mods = [(record, mod[0], mod[1]) for record in records for mod in record["mods"]]
    else:
        assert isinstance(change, dict)
        record = change["data_change_record"]
        mods = [(record, mod["keys"], mod["new_values"]) for mod in record["mods"]]
    return [
        {
            "commit_timestamp": str(record["commit_timestamp"]),
            "record_sequence": record["record_sequence"],
            "server_transaction_id": record["server_transaction_id"],
            "mod_index": index,
            "table": record["table_name"],
            "mod_type": record["mod_type"],
            "value_capture_type": record["value_capture_type"],
            "payload": orjson.dumps({**keys, **values}).decode(),
        }
        for index, (record, keys, values) in enumerate(mods)
    ]


def _measure(dialect: str, framing: str, mods: int, rounds: int) -> dict[str, object]:
    prepared = answer(dialect, framing, mods)
    ours: list[Measure] = []
    baseline: list[Measure] = []
    with replaying(prepared.messages) as host:
        _ours(host, dialect)
        for _ in range(rounds):
            ours.append(_timed(lambda: _ours(host, dialect), prepared.mods))
            baseline.append(_timed(lambda: _baseline(host, dialect), prepared.mods))
    wall, cpu = (statistics.median(m[i] for m in ours) for i in (0, 1))
    base_wall, base_cpu = (statistics.median(m[i] for m in baseline) for i in (0, 1))
    return {
        "name": "wire-to-arrow",
        "dialect": dialect,
        "framing": framing,
        "events_per_s": round(prepared.mods / wall),
        "baseline_events_per_s": round(prepared.mods / base_wall),
        "ratio_wall": round(base_wall / wall, 2),
        "ratio_cpu": round(base_cpu / cpu, 2),
        "rounds": rounds,
    }


@click.command()
@click.option("--mods", default=10_000, show_default=True, help="Mods a round.")
@click.option("--rounds", default=3, show_default=True)
def main(mods: int, rounds: int) -> None:
    """Measures from the wire to Arrow, and writes benchmarks/results.json."""
    results = []
    click.echo(f"{'dialect':12} {'framing':8} {'events/s':>10} {'baseline':>10} {'wall':>7} {'CPU':>7}")
    for dialect in ("googlesql", "postgresql"):
        for framing in FRAMINGS:
            result = _measure(dialect, framing, mods, rounds)
            results.append(result)
            click.echo(
                f"{dialect:12} {framing:8} {result['events_per_s']:>10} {result['baseline_events_per_s']:>10}"
                f" {result['ratio_wall']:>6}x {result['ratio_cpu']:>6}x"
            )
    path = Path(__file__).with_name("results.json")
    path.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main()
