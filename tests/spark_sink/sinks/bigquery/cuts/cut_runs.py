"""Runs of the sink that publish cuts, without Spark: micro-batch by micro-batch, killed at random, and read beside."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import cast

import pytest
from pyspark.sql import SparkSession

from connector.config.sinks import sink_type
from spark_sink.publishing import Publication
from spark_sink.sinks.bigquery import jobs
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.cuts.store import BigQueryCuts
from spark_sink.sinks.bigquery.sink_type import BigQuerySink
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.published_cut import PublishedCut
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.cuts.readers import reads
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.bigquery.cuts.transfers import TABLES, Transfers
from tests.spark_sink.sinks.bigquery.deliveries.histories import History
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, Scenario, killed_at

SPARK = cast("SparkSession", None)

_KILLS: dict[str, Sequence[tuple[type, str]]] = {
    "append-only": ((BigQueryWriter, "commit"), (BigQueryWriter, "finalize"), (BigQueryCuts, "publish")),
    "merge-load": ((BigQueryClient, "query"), (BigQueryClient, "load"), (BigQueryCuts, "publish")),
}
"""The calls before or after which a sink is killed, by mode."""

_NEWEST = {
    "append-only": "SELECT SUM(Balance) AS n FROM (SELECT * FROM `{0}.%s` x QUALIFY ROW_NUMBER() OVER (PARTITION BY Id"
    " ORDER BY datastream_metadata.change_sequence_number DESC) = 1) x"
    " WHERE datastream_metadata.change_type != 'DELETE'",
    "merge-load": "SELECT SUM(Balance) AS n FROM `{0}.%s`",
}
_NEWEST_TIME = "SELECT CAST(as_of AS STRING) FROM `{0}._cuts` ORDER BY epoch DESC, published_at DESC LIMIT 1"


def deliver(scenario: Scenario) -> None:
    """Delivers what is sealed; a micro-batch is done once its cut is published."""
    with scenario.sink() as sink:
        _deliver(sink, Publication(sink.delivery))


def _deliver(sink: SinkRun, publication: Publication) -> None:
    while sink.plan():
        publication.before_batch()
        sink.deliver([row for task in sink.tasks() for row in sink.reports(task)])
        publication.after_batch(SPARK)
        sink.checkpoint.done = True


def sum_of(query: str) -> str:
    """The sum of both tables in one statement, as a join of them would see it."""
    return f"SELECT {' + '.join(f'(SELECT n FROM ({query % table}))' for table in TABLES)} AS total"


class CutScenario:
    """A load of transfers, delivered to a dataset of its own, with readers."""

    def __init__(self, server: LocalBigQuery, folder: Path, mode: str, seed: int, **options: object) -> None:
        self.random = Random(seed)
        self.mode = mode
        self.scenario = Scenario(server, folder, mode, History(Random(0)), dict(options))
        self.transfers = Transfers(self.scenario.maker, self.random)
        self.did: Counter[str] = Counter()
        self._running: tuple[SinkRun, Publication] | None = None

    def deliver(self) -> None:
        """Delivers what is sealed, and publishes a cut after each micro-batch."""
        deliver(self.scenario)

    def deliver_on(self) -> None:
        """The same by one process, which runs on until it is killed or ended."""
        if self._running is None:
            started = self.scenario.sink()
            self._running = started, Publication(started.delivery)
        sink, publication = self._running
        sink.only_what_is_sealed()
        try:
            _deliver(sink, publication)
        except KilledError:
            self.end()
            raise

    def end(self) -> None:
        """Ends the process, if one runs."""
        if self._running is not None:
            self._running[0].end()
            self._running = None

    def kill(self) -> None:
        """Delivers until the sink is killed somewhere; whoever joins tables then may see half a transaction."""
        owner, method = self.random.choice(_KILLS[self.mode])
        call = 1 if owner is BigQueryCuts else self.random.choice((1, 2))  # a micro-batch is published once
        after = self.random.random() < 0.5
        with killed_at(owner, method, call=call, after=after), suppress(KilledError):
            self.deliver_on()
            return
        self.did["kills"] += 1
        self.look_without_cut()

    def look_without_cut(self) -> None:
        """Joins the tables as they are."""
        found = self.total(sum_of(_NEWEST[self.mode]))
        self.did["sums without a cut"] += 1
        self.did["wrong sums without a cut"] += found != self.transfers.total

    def look_at_cut(self) -> None:
        """Joins the tables as of the newest cut, as the guide says."""
        if self.mode == "append-only":
            found = self.total(sum_of("SELECT SUM(Balance) AS n FROM `{0}.%s_at_cut`"))
        else:
            ((as_of,),) = [row.values() for row in self.scenario.query(_NEWEST_TIME)]
            found = self.total(sum_of(f"{_NEWEST[self.mode]} FOR SYSTEM_TIME AS OF TIMESTAMP '{as_of}'"))
        assert found == self.transfers.total, f"the newest cut has {found}"
        self.did["sums in the newest cut"] += 1

    def check(self, cut: PublishedCut) -> None:
        """Joins the tables as of a cut, by the version of all tables."""
        (version,) = {table.version for table in cut.tables.values()}
        if self.mode == "append-only":
            within = f"WHERE datastream_metadata.change_sequence_number <= '{version}' QUALIFY"
            query = _NEWEST[self.mode].replace("QUALIFY", within)
        else:
            query = f"{_NEWEST[self.mode]} FOR SYSTEM_TIME AS OF TIMESTAMP '{version}'"
        found = self.total(sum_of(query))
        assert found == self.transfers.total, f"the cut of epoch {cut.epoch} has {found}"
        self.did["sums in cuts"] += 1

    def half_deliver(self) -> None:
        """Delivers one table of an epoch, and is killed before the other; the sink then delivers both."""
        self.transfers.seal(3)
        owner, method = (BigQueryWriter, "commit") if self.mode == "append-only" else (BigQueryClient, "query")
        with killed_at(owner, method, call=2), pytest.raises(KilledError):
            self.deliver_on()
        self.look_without_cut()
        self.look_at_cut()
        self.deliver_on()

    def total(self, sql: str) -> int:
        """The sum that a statement finds."""
        ((found,),) = [row.values() for row in self.scenario.query(sql)]
        return int(found or 0)

    def published(self) -> Sequence[PublishedCut]:
        """The cuts that ``spanner-cdc cuts`` lists."""
        config = self.scenario.config()
        kind = sink_type(config.sink.type)
        assert isinstance(kind, BigQuerySink)
        return kind.published_cuts(config, config.sink)  # type: ignore[arg-type]  # of a BigQuery sink

    def check_rows(self) -> None:
        """Fails unless epochs and timestamps ascend, and every table was complete."""
        found = self.published()
        assert [cut.epoch for cut in found] == sorted({cut.epoch for cut in found})
        assert [cut.timestamp for cut in found] == sorted(cut.timestamp for cut in found)
        assert not any(cut.incomplete for cut in found)
        assert found[-1].epoch == self.scenario.maker.spool.latest()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads from another thread for as long as the context is open, with a cut and without."""
        ended = threading.Event()
        errors: list[BaseException] = []

        def read() -> None:
            try:
                for _ in reads(ended):
                    self.look_without_cut()
                    self.look_at_cut()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=read, name="reader")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if errors:
            raise errors[0]


def campaign(run: CutScenario, cuts: int, kills: int) -> None:
    """Publishes cuts under load, while the sink is killed and others read; fails where a sum as of a cut is wrong."""
    killed = set(run.random.sample(range(cuts), kills))
    run.deliver_on()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "PREVENTED_AFTER", 0.0)  # no other process is about to start a job
        with run.reading():
            for number in range(cuts):
                run.transfers.seal(3)
                if number in killed:
                    run.kill()
                run.deliver_on()
                if number % 50 == 49:
                    report(f"{number + 1} cuts, {run.did['kills']} kills")
        run.half_deliver()
        run.end()
    found = run.published()
    for cut in found:
        run.check(cut)
    run.check_rows()
    run.did["cuts"] = len(found)
