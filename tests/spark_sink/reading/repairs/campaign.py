"""One campaign: a replica with damages and a gap, repaired while its source is written and its sink runs."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from google.cloud.spanner_v1.keyset import KeySet

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.backfill.records import backfills
from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from emulator import SampleDatabase
from tests.integration.commands import Background, run
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.reading.backfill.campaign.differences import Traces, differing
from tests.spark_sink.reading.backfill.campaign.service import configured
from tests.spark_sink.reading.backfill.campaign.tables import (
    Load,
    columns_of,
    committed_at,
    ddl,
    load,
    rows_of_database,
)
from tests.spark_sink.reading.repairs.damages import Damaged, Damages

_PATIENCE = 3000.0


class Campaign:
    """One database, one destination.

    Attributes:
        folder: everything of the run.
    """

    def __init__(self, sample: SampleDatabase, target: Damaged, folder: Path, *, rows: int, seed: int) -> None:
        self._sample = sample
        self._target = target
        self.folder = folder
        self._rows = rows
        self._random = Random(seed)
        self._seed = seed
        self._runs = 0
        self._started = time.monotonic()
        self._spool = Spool.at(folder / "spool")

    def run(self, damages: int, *, kills: int = 0, writes: int = 0) -> str:
        """Replicates, damages and repairs; returns what is wrong, or an empty text.

        Args:
            damages: rows that are damaged, a fifth of them by deletes that are lost in a gap.
            kills: how often the first repair is killed before it ends.
            writes: how many are wanted meanwhile before they become few; 0 for as many as there can be.
        """
        database = self._sample.database
        self._sample.run_ddl(*ddl(self._sample.dialect))
        load(database, self._rows)
        at = self._now()
        with self._service() as service:
            service.until(lambda: self._is_filled() and self._is_delivered(at), "the backfill", timeout=_PATIENCE)
            service.stop(timeout=_PATIENCE)
        self._report(f"{self._rows} rows replicated")
        lost = self._lose_deletes(damages // 5)
        self._report(f"{lost} deletes lost in a gap")
        by_hand = Damages.drawn(rows_of_database(database, self._now()), damages - lost, self._random)
        self._target.damage(by_hand)
        self._report(f"{damages - lost} rows damaged by hand")
        with self._service() as service:
            with Load(database, self._rows, Random(self._seed + 1), writes=writes) as written:
                at = self._now()
                service.until(lambda: self._is_delivered(at), "the changes", timeout=_PATIENCE)
                lacking = self._incomplete()
                if not lacking or not all("were not read" in why for why in lacking.values()):
                    return f"after the gap the newest cut says of tables: {lacking}"
                for _ in range(kills):
                    self._kill_repair()
                started = time.monotonic()
                found = self._repaired()
                seconds = time.monotonic() - started
            self._report(f"{found['repair']['rows']} rows repaired in {seconds:.0f} s: {found['repair']['tables']}")
            self._report(f"{written.writes} rows written in {written.transactions} transactions meanwhile")
            at = self._now()
            service.until(lambda: self._is_delivered(at), "the last changes", timeout=_PATIENCE)
            known = len(backfills(self._spool))
            found = self._repaired()
            again = len(backfills(self._spool)) - known
            self._now()
            service.until(lambda: not self._incomplete(), "a cut with complete tables", timeout=_PATIENCE)
            service.stop(timeout=_PATIENCE)
        self._report(f"once more: {found['differing_rows']} rows differ, {again} repairs")
        expected, rows = rows_of_database(database, at), self._target.rows()
        keys = differing(expected, rows)
        self._report(f"{len(expected)} rows in Spanner, {len(rows)} at the destination, {len(keys)} differ")
        if keys:
            traces = Traces(self._sample, self.folder, keys, str(at.rfc3339()))
            traces.write(self.folder / "differences.json", expected, rows)
            return f"{len(keys)} rows differ: {keys[:5]}"
        dead = [path for path in (self.folder / "dead").rglob("*") if path.is_file()]
        if dead:
            return f"{len(dead)} files of dead letters"
        return f"a repair of {found['differing_rows']} rows followed" if again else ""

    def _lose_deletes(self, count: int) -> int:
        """Deletes rows while nothing reads, and continues after a gap; returns how many."""
        rows = [row for row in rows_of_database(self._sample.database, self._now()) if row[0].startswith("Child")]
        chosen = self._random.sample(sorted(rows), count)
        with self._sample.database.batch() as batch:
            for table, key in chosen:
                batch.delete(table, KeySet(keys=[key]))
        restart = format_rfc3339(parse(str(self._now().rfc3339())) // 1000 * 1000)
        done = run("spool", self.folder / "spool", "--restart-at", restart)
        assert done.code == 0, done.err
        return count

    def _kill_repair(self) -> None:
        """Kills a repair once it is recorded; what it has started ends by itself."""
        self._runs += 1
        known = len(backfills(self._spool))
        log = self.folder / f"killed-{self._runs}.log"
        with Background("verify", self._config(), "--repair", log=log) as repair:
            repair.until(lambda: len(backfills(self._spool)) > known, "the repair is recorded", timeout=_PATIENCE)
        self._report("a repair was killed")

    def _repaired(self) -> dict[str, Any]:
        done = run("verify", self._config(), "--repair", "--json", timeout=_PATIENCE)
        (self.folder / "verify.log").write_text(done.err)
        assert done.code == 0, done.out.decode() + done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    def _is_filled(self) -> bool:
        try:
            return all(one.progress.is_done for one in backfills(self._spool)) and bool(backfills(self._spool))
        except FileNotFoundError:
            return False

    @property
    def _consumer(self) -> str:
        """The sink's name."""
        sink = self._target.sink()
        return str(sink.get("name", sink.get("type", "files")))

    def _incomplete(self) -> Mapping[str, str]:
        """The tables that are not complete at the newest published cut, with the reasons."""
        cut = report_of(self._spool, self._consumer).cut
        return {} if cut is None else cut.incomplete

    def _is_delivered(self, at: Any) -> bool:
        consumer = find(self._spool, self._consumer)
        return consumer is not None and bool(consumer.at) and watermark_of(consumer.at) >= parse(str(at.rfc3339()))

    def _now(self) -> Any:
        """The timestamp of a commit."""
        with self._sample.database.batch() as batch:
            batch.insert_or_update("Parent0", columns_of("Parent0"), [(10**9 + 1, "now", time.time_ns())])
        return committed_at(batch)

    def _service(self) -> Background:
        self._runs += 1
        return Background("run", self._config(), log=self.folder / f"run-{self._runs}.log")

    def _config(self) -> Path:
        return configured(self._sample, self.folder, self._target.sink())

    def _report(self, line: str) -> None:
        report(f"{time.monotonic() - self._started:.0f} s: {line}")
