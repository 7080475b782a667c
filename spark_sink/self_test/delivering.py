"""Delivers the spool with each sink that is named, by ``spanner-cdc run``, and compares the destination."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from connector.core.timestamps import format_rfc3339
from connector.spool.storage.opening import open_store
from spark_sink.errors import SinkError
from spark_sink.self_test.commands import CommandError
from spark_sink.self_test.comparison import HistoryComparison
from spark_sink.self_test.database import Leftovers
from spark_sink.self_test.reading import StreamReading
from spark_sink.self_test.report import ProbeStatus
from spark_sink.self_test.tables import WHOLE


@dataclass(slots=True)
class Delivering:
    """Runs sinks.

    Args:
        reading: what was read; each sink gets a copy of its spool.
        end: everything up to here is delivered, nanoseconds since 1970.
        left: remembers what is made.
    """

    reading: StreamReading
    end: int
    left: Leftovers

    def files(self, name: str, path: str) -> None:
        """Delivers into files, and compares every event with what was committed."""
        if path.startswith("gs://"):
            self.left.add(
                f"objects below {path}/", f"gcloud storage rm --recursive {path}/", lambda: _delete_below(path)
            )
        config = self._delivered(name, {"type": "files", "path": path})
        if config is None:
            return
        test = self.reading.test
        comparison = HistoryComparison(test.tables, test.committed, tags=self.reading.tags)
        found = comparison.differences(_events_below(path))
        self.reading.compared(f"{name}: its events", found, sum(len(one.mods) for one in test.committed))
        self._verified(name, config)

    def bigquery(self, mode: str, compare: Callable[[str], list[str]] | None) -> None:
        """Delivers into tables of BigQuery in a mode.

        Args:
            mode: of the sink.
            compare: compares the rows of an appended table with what was committed; gets the tables' prefix. None
                where the server runs no queries.
        """
        options = self.reading.test.options
        name = f"bigquery, {mode}"
        prefix = f"{self.reading.test.names.prefix}{mode.replace('-', '_')}_"
        sink: dict[str, object] = {
            "type": "bigquery",
            "project": options.bigquery_project,
            "dataset": options.dataset,
            "mode": mode,
            "prefix": prefix,
            "max_staleness": "0s",
            "arrays": "repeated" if options.bigquery_endpoint else "json",  # the stand-ins have no JSON of lists
            "endpoint": options.bigquery_endpoint,
            "grpc_endpoint": options.bigquery_grpc_endpoint,
        }
        config = self._delivered(name, sink)
        if config is None:
            return
        if compare is None:
            why = "delivered, but this server runs no queries"
            self.reading.report.check(f"{name}: its rows", ProbeStatus.SKIPPED, why)
            return
        if mode in ("append-only", "changelog"):
            mods = sum(len(one.mods) for one in self.reading.test.committed)
            self.reading.compared(f"{name}: its rows", compare(prefix), mods)
        if mode != "changelog":  # has no rows to verify, only changes
            self._verified(name, config)

    def _delivered(self, name: str, sink: Mapping[str, object]) -> Path | None:
        """Runs the sink until everything is delivered; returns its configuration, or None if it failed."""
        folder = self.reading.folder / name.replace(", ", "-").replace(" ", "-")
        shutil.copytree(self.reading.spool, folder / "spool")
        dead_letters = folder / "dead-letters"
        config = self.reading.configured(
            folder.name,
            folder / "spool",
            self.reading.source(WHOLE, end=format_rfc3339(self.end)),
            sink={**sink, "dead_letters": str(dead_letters)},
            spark={"master": "local[2]", "checkpoint": str(folder / "checkpoint"), "trigger": "1s"},
        )
        try:
            done = self.reading.commands.run("run", config)
        except CommandError as error:
            self.reading.report.check(name, ProbeStatus.FAILED, str(error))
            return None
        if done.code:
            self.reading.failed(name, done)
            return None
        reasons = sorted(set(_reasons(dead_letters)))
        if reasons:
            self.reading.report.check(f"{name}: dead letters", ProbeStatus.DIFFERENT, "rows were rejected", reasons)
        return config

    def _verified(self, name: str, config: Path) -> None:
        """Compares the destination's rows with Spanner's (``spanner-cdc verify``)."""
        done = self.reading.commands.run("verify", config, "--json")
        if not done.out:
            self.reading.failed(f"{name}: verify", done)
            return
        report = json.loads(done.out)
        rows = sum(table["rows"] for table in report["tables"])
        found = [
            f"{one['kind']}: {one['rows']} rows of {one['table']} {' '.join(one['columns'])}".rstrip()
            for one in report["differences"]
        ]
        status = ProbeStatus.DIFFERENT if found or done.code else ProbeStatus.GOOD
        detail = f"{rows} rows at {report['at']}: {report['differing_rows']} differ"
        differences = [*found, *report["notes"]] if found else found
        self.reading.report.check(f"{name}: verify", status, detail, differences)


def _events_below(path: str) -> Iterator[Mapping[str, Any]]:
    store = open_store(path, failure=SinkError, option="--bucket")
    for file in store.walk():
        if file.path.endswith((".jsonl", ".jsonl.gz")):
            data = store.read(file.path).to_pybytes()
            lines = gzip.decompress(data) if file.path.endswith(".gz") else data
            yield from map(orjson.loads, lines.splitlines())


def _delete_below(path: str) -> None:
    from connector.spool.storage.bucket import Bucket  # needs the extra gcs

    bucket = Bucket(path, failure=SinkError, option="--bucket")
    for name, _, _ in list(bucket.walk("")):  # those that stand for a folder, too
        bucket.delete(name)


def _reasons(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            yield f"{path.parent.name}: {orjson.loads(line).get('reason')}"
