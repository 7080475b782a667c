"""The destination says up to which commit timestamp every change is applied, and which tables are incomplete."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.backfill.records import spool_of
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from spark_sink.cuts_command import main
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sinks.spanner.connection import key_of
from spark_sink.sinks.spanner.source import EpochsToApply, applied
from spark_sink.sinks.spanner.writing.cut_store import SpannerCutStore
from spark_sink.sinks.spanner.writing.progress import VIEW
from spark_sink.sinks.spanner.writing.writer import MOST_CHANGES
from tests.connector.spool.backfill.builders import planned, recorded, segment
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import ARTISTS, Replica, target_of
from tests.spark_sink.spools import START, SpoolMaker, record

MODES = pytest.mark.parametrize("mode", ["rows", "transactions"])


def names(spool: SpoolMaker, *seconds: int, high: int | None = None) -> None:
    """Seals an epoch with an INSERT at each of these seconds."""
    rows = [record(START + at * SECOND + 7, [at], table="Names", values={"Name": f"n{at}"}) for at in seconds]
    spool.seal(*rows, high=high)


def replica_of(database: MakeDatabase, dialect: str, spool: SpoolMaker, mode: str) -> Replica:
    sample = database(dialect=dialect)
    sample.run_ddl(*ARTISTS[dialect])
    return Replica(sample, spool, mode=mode)


def view_of(replica: Replica) -> list[tuple[object, ...]]:
    with replica.sample.database.snapshot() as snapshot:
        query = f"SELECT epoch, complete_up_to_text, complete_up_to, incomplete FROM {VIEW}"
        return [tuple(row) for row in snapshot.execute_sql(query)]


@MODES
def test_the_view_has_the_watermark_of_the_last_epoch_with_all_its_digits(
    database: MakeDatabase, dialect: str, spool: SpoolMaker, mode: str
) -> None:
    replica = replica_of(database, dialect, spool, mode)
    assert view_of(replica) == []
    names(spool, 1, 2)
    spool.seal(high=START + 4 * SECOND + 123_456_789)
    replica.apply()
    ((epoch, text, timestamp, incomplete),) = view_of(replica)
    assert (epoch, text, incomplete) == (2, "2026-03-01T10:00:04.123456789Z", None)
    assert str(timestamp).replace(" ", "T").startswith("2026-03-01T10:00:04.123456")


def test_in_mode_transactions_every_commit_is_a_cut(
    database: MakeDatabase, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_CHANGES, "transactions", 2)
    replica = replica_of(database, "googlesql", spool, "transactions")
    names(spool, 1, 2, 3, 4, 5)
    found = []
    for _ in applied(replica.partition()):
        ((epoch, text, *_),) = view_of(replica)
        rows = [key for key, _ in replica.rows("Names", "Id", "Name")]
        found.append((epoch, rows))
        assert [key for key in range(1, 6) if format_rfc3339(START + key * SECOND + 7) <= str(text)] == rows
    assert found == [(0, [1, 2]), (0, [1, 2, 3, 4]), (1, [1, 2, 3, 4, 5])]


def test_transactions_of_one_timestamp_that_are_divided_are_no_cut_at_that_timestamp(
    database: MakeDatabase, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_CHANGES, "transactions", 1)
    replica = replica_of(database, "googlesql", spool, "transactions")
    at = START + SECOND
    spool.seal(*(record(at, [key], table="Names", values={"Name": f"n{key}"}, transaction=f"t{key}") for key in (1, 2)))
    texts = [view_of(replica)[0][1] for _ in applied(replica.partition())]
    assert texts == [format_rfc3339(at - 1), format_rfc3339(at)]


@MODES
def test_a_micro_batch_that_is_repeated_and_another_process_keep_the_timestamp(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    replica = replica_of(database, "googlesql", spool, mode)
    names(spool, 1)
    replica.apply()
    before = view_of(replica)
    replica.apply()
    assert view_of(replica) == before
    assert before[0][1] == format_rfc3339(START + SECOND + 7)


@MODES
def test_the_view_names_a_table_as_incomplete_from_the_commit_on_that_passes_its_dead_letter(
    database: MakeDatabase, dialect: str, spool: SpoolMaker, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_CHANGES, mode, 1)
    replica = replica_of(database, dialect, spool, mode)
    rows = enumerate(["a", "a", "c"], 1)  # the second is refused, because the index is unique
    spool.seal(*(record(START + at * SECOND, [at], table="Names", values={"Name": name}) for at, name in rows))
    seen = []
    for _ in applied(replica.partition()):
        seen += [(str(text), incomplete) for _, text, _, incomplete in view_of(replica)]
    seen += [(str(text), incomplete) for _, text, _, incomplete in view_of(replica)]
    lacking = '{"Names":"it has dead letters"}'
    passed = [incomplete for text, incomplete in seen if text >= format_rfc3339(START + 2 * SECOND)]
    assert passed == [lacking] * len(passed)
    assert passed
    assert seen[0][1] is None


def backfilled(replica: Replica, spool: SpoolMaker, second: int, *ids: int) -> EpochsToApply:
    """The micro-batch of a backfill of Names as of a second, sealed and not yet applied."""
    document = recorded(spool.spool, spool.spool.header(), "Names", at=START + second * SECOND)
    own = spool_of(spool.spool, document.number)
    planned(spool.spool, document, {"Names": 1})
    part = BackfillPart(table="Names", plan=1, partition=0)
    writer = BackfillWriter(own, own.header(), document)
    writer.seal(part, [segment(own, "Names", list(ids), epoch=1)], now=START + second * SECOND)
    return replace(replica.partition(), spool=own.path, manifests=(own.manifest(1),))


def incomplete(replica: Replica) -> list[object]:
    return [None if lacking is None else orjson.loads(str(lacking)) for *_, lacking in view_of(replica)]


@MODES
def test_while_a_backfill_is_applied_the_view_names_its_tables_until_a_later_cut(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    replica = replica_of(database, "googlesql", spool, mode)
    names(spool, 1)
    replica.apply()
    list(applied(backfilled(replica, spool, 5, 1, 2, 3)))
    later = {"Names": "its backfill's rows are as of 2026-03-01T10:00:05.000000Z"}
    assert len(replica.rows("Names", "Id", "Name")) == 3
    assert incomplete(replica) == [later]
    names(spool, 3)
    replica.apply(first=2)
    assert incomplete(replica) == [later]


def test_changes_from_before_a_backfill_are_applied_under_its_reason_from_the_first_commit_on(
    database: MakeDatabase, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_CHANGES, "transactions", 1)
    replica = replica_of(database, "googlesql", spool, "transactions")
    list(applied(backfilled(replica, spool, 2, 1, 2)))
    assert incomplete(replica) == [], "nothing of the stream is applied"
    names(spool, 1, 2, 3)
    later = {"Names": "its backfill's rows are as of 2026-03-01T10:00:02.000000Z"}
    seen = [found for _ in applied(replica.partition()) for found in incomplete(replica)]
    assert seen == [later] * len(seen)
    assert seen
    names(spool, 4)
    store = SpannerCutStore(target_of(replica.sample), "spanner-cdc", "googlesql", key_of(spool.spool, "spanner"))
    at = {"timestamp": START + 3 * SECOND + 7, "epoch": 1, "published_at": START + 9 * SECOND}
    store.publish(PublishedCut(spool_id=spool.spool_id, tables={"Names": TableAtCut()}, **at))
    replica.apply(first=2)
    assert incomplete(replica) == [None], "its rows are no later than the next changes"


def test_rows_of_a_backfill_have_no_timestamp(database: MakeDatabase, spool: SpoolMaker) -> None:
    replica = replica_of(database, "googlesql", spool, "rows")
    names(spool, 1)
    partition = replica.partition()
    part = BackfillPart(table="Names", plan=1, partition=0)
    manifests = tuple(one.model_copy(update={"backfill": part}) for one in partition.manifests)
    list(applied(type(partition)(**{**vars(partition), "manifests": manifests})))
    assert replica.rows("Names", "Id", "Name") == [(1, "n1")]
    assert view_of(replica) == []


def test_a_published_cut_is_kept_with_the_tables_that_are_incomplete(
    database: MakeDatabase, dialect: str, spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = replica_of(database, dialect, spool, "transactions")
    key = key_of(spool.spool, "spanner")
    store = SpannerCutStore(target_of(replica.sample), "spanner-cdc", dialect, key)
    cut = PublishedCut(
        timestamp=START + SECOND + 7,
        epoch=1,
        spool_id=spool.spool_id,
        published_at=START + 9 * SECOND,
        tables={"Names": TableAtCut(), "Songs": TableAtCut(incomplete="it has dead letters")},
    )
    store.publish(cut)
    assert store.newest() is None, "nothing is applied"
    names(spool, 1)
    replica.apply()
    store.publish(cut)
    assert store.newest() == cut
    names(spool, 2)
    replica.apply(first=2)
    assert store.newest() == cut
    assert store.cuts() == [cut]
    assert view_of(replica)[0][3] == '{"Songs":"it has dead letters"}'
    path = tmp_path / "config.yaml"
    sample = replica.sample
    path.write_text(
        f"source: {{project: {sample.project}, instance: {sample.instance}, database: d, change_stream: Everything,"
        f" emulator_host: '{sample.host}'}}\n"
        f"spool: {{path: {spool.path}}}\nsink: {{type: spanner, database: {sample.database_id}}}\n"
    )
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("epoch 1  1 table complete; not Songs: it has dead letters\n")
