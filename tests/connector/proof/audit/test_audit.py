"""An audit finds nothing in a healthy spool, and whatever was taken out of one, doubled, altered or replaced."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.envelope.envelope import SOURCE_METADATA
from connector.errors import ConfigurationError, DataLostError, SpoolError, SpoolMismatchError
from connector.proof.audit.command import AuditReport
from connector.proof.audit.findings import EpochFinding, Finding, Kind, TransactionFinding
from connector.spool.gaps import restart_at
from connector.spool.manifest import crc32c
from connector.spool.reading import Spool, manifest_path
from connector.spool.writing import sole_writer
from emulator import ScriptedServer
from emulator.scenario.scenario import steady
from emulator.scripted import information_schema
from tests.connector.api import spools
from tests.connector.api.streams import ORIGIN, drawn, serving, settings, written
from tests.connector.proof.audit.altering import (
    altered,
    epoch_with_rows,
    of_transaction,
    transactions,
    with_column,
    without_transaction,
)
from tests.connector.proof.audit.auditing import audited
from tests.integration.commands import run

SCENARIO = steady(
    3, origin=ORIGIN, seconds=10, partitions=4, records_per_second_per_partition=50, mods_per_record=10,
    churn_per_minute=6,
)  # fmt: skip
MODS = 20_000
"""About so many."""


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with serving(SCENARIO) as running:
        yield running


@pytest.fixture(scope="module")
def healthy(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "spool"
    for seconds in range(2, 12, 2):  # at least five epochs, however fast it is read
        spools.read_into(path, server, end=ORIGIN + seconds * SECOND)
    return path


@pytest.fixture
def spool(healthy: Path, tmp_path: Path) -> Path:
    return spools.copied(healthy, tmp_path / "spool")


def a_transaction(rows: pa.Table) -> str:
    """One in the middle."""
    return str(transactions(rows)[rows.num_rows // 2].as_py())


def only(report: AuditReport) -> Finding:
    assert report.findings.total == 1, report.to_text()
    return report.findings.first[0]


def transaction_of(finding: Finding) -> TransactionFinding:
    assert isinstance(finding, TransactionFinding)
    return finding


def test_a_healthy_spool_has_no_findings(healthy: Path, server: ScriptedServer) -> None:
    report = audited(healthy, server)
    assert report.findings.total == 0, report.to_text()
    committed = sum(len(event.mods) for event in SCENARIO.history.in_commit_order())
    assert committed > 0.9 * MODS
    assert report.findings.mods == committed
    assert report.epochs == Spool.at(healthy).latest()
    assert report.notes == []
    assert report.to_text().endswith("no findings")


@pytest.mark.long
def test_a_transaction_that_was_taken_out_is_missing(spool: Path, server: ScriptedServer) -> None:
    taken: list[str] = []

    def change(rows: pa.Table) -> pa.Table:
        taken.append(a_transaction(rows))
        return without_transaction(rows, taken[0])

    altered(spool, change)
    finding = transaction_of(only(audited(spool, server)))
    assert (finding.kind, finding.transaction, finding.count) == (Kind.MISSING, taken[0], 10)
    assert finding.tables == ("Accounts",)


@pytest.mark.long
def test_a_transaction_that_was_doubled_is_there_twice(spool: Path, server: ScriptedServer) -> None:
    def change(rows: pa.Table) -> pa.Table:
        name = a_transaction(rows)
        both = pa.concat_tables([rows, of_transaction(rows, name)])
        at = pc.list_element(both.column("sort_keys"), 1).cast(pa.int64()).to_numpy()
        return both.take(pa.array(np.argsort(at, kind="stable")))

    manifest = altered(spool, change)
    finding = transaction_of(only(audited(spool, server)))
    assert (finding.kind, finding.count, finding.epoch) == (Kind.TWICE, 10, manifest.epoch)


def test_a_value_that_was_altered_is_found_and_not_printed(spool: Path, server: ScriptedServer) -> None:
    def change(rows: pa.Table) -> pa.Table:
        payloads = rows.column("payload").to_pylist()
        at = rows.num_rows // 2
        node = json.loads(payloads[at])
        payloads[at] = json.dumps({**node, "Owner": "somebody else"})
        return with_column(rows, "payload", pa.array(payloads))

    altered(spool, change)
    report = audited(spool, server)
    finding = transaction_of(only(report))
    assert finding.kind is Kind.DIFFERENT
    assert [mod.fields for mod in finding.mods] == [("payload.Owner",)]
    assert "somebody else" not in report.to_text() + str(report.to_json())


def test_an_epoch_file_that_was_replaced_by_another_one_of_the_spool_is_found(
    spool: Path, server: ScriptedServer
) -> None:
    stored = Spool.at(spool)
    target = epoch_with_rows(spool)
    other = next(one for one in stored.manifests(1, stored.latest()) if one.rows and one.epoch != target.epoch)
    foreign = pa.Table.from_batches(stored.batches(other.files[0]))
    altered(spool, lambda _: foreign, epoch=target.epoch)
    report = audited(spool, server)
    assert report.findings.counts[Kind.MISSING] == target.rows / 10
    (finding,) = [one for one in report.findings.first if isinstance(one, EpochFinding) and "outside" in one.problem]
    assert finding.epoch == target.epoch


@pytest.mark.long
def test_an_epoch_file_whose_checksum_does_not_match_is_one_finding(spool: Path, server: ScriptedServer) -> None:
    manifest = altered(spool, lambda rows: rows.slice(1), checksums=False)
    finding = only(audited(spool, server))
    assert isinstance(finding, EpochFinding)
    assert finding.epoch == manifest.epoch
    assert "checksum does not match" in finding.problem


@pytest.mark.long
def test_an_epoch_file_that_is_gone_or_is_no_arrow_file_is_one_finding(spool: Path, server: ScriptedServer) -> None:
    stored, manifest = Spool.at(spool), epoch_with_rows(spool)
    stored.storage.delete(manifest.files[0].path)
    finding = only(audited(spool, server))
    assert isinstance(finding, EpochFinding)
    assert "it is missing" in finding.problem

    data = b"no arrow file"
    stored.storage.replace(manifest.files[0].path, data)
    file = manifest.files[0].model_copy(update={"bytes": len(data), "crc32c": crc32c(data)})
    stored.storage.replace(manifest_path(manifest.epoch), manifest.model_copy(update={"files": (file,)}).to_json())
    finding = only(audited(spool, server))
    assert isinstance(finding, EpochFinding)
    assert "its rows cannot be read" in finding.problem


def test_an_epoch_that_is_missing_is_one_finding(spool: Path, server: ScriptedServer) -> None:
    epoch = epoch_with_rows(spool).epoch
    Spool.at(spool).storage.delete(manifest_path(epoch))
    finding = only(audited(spool, server))
    assert isinstance(finding, EpochFinding)
    assert (finding.epoch, finding.problem) == (epoch, "its manifest is missing")


def test_a_transaction_in_the_spool_that_was_never_committed_is_extra(spool: Path, server: ScriptedServer) -> None:
    def change(rows: pa.Table) -> pa.Table:
        metadata = rows.column("source_metadata").combine_chunks()
        name = a_transaction(rows)
        names = pc.if_else(pc.equal(transactions(rows), name), "invented", transactions(rows))
        at = SOURCE_METADATA.get_field_index("server_transaction_id")
        columns = metadata.flatten()
        columns[at] = names
        return with_column(rows, "source_metadata", pa.StructArray.from_arrays(columns, fields=list(SOURCE_METADATA)))

    altered(spool, change)
    report = audited(spool, server)
    assert report.findings.counts == {Kind.MISSING: 1, Kind.EXTRA: 1}
    assert "invented" in report.to_text()


def test_pruned_epochs_are_no_findings_and_are_reported(spool: Path, server: ScriptedServer) -> None:
    first = Spool.at(spool).latest() // 2
    spools.prune(spool, first)
    report = audited(spool, server, start=format_rfc3339(ORIGIN))
    assert report.findings.total == 0, report.to_text()
    assert report.epochs == Spool.at(spool).latest() - first + 1
    assert report.notes[0].startswith("the spool keeps no epochs of what was committed before")


def test_epochs_that_are_pruned_while_the_audit_runs_are_no_findings(
    spool: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Spool.at(spool).latest() // 2
    plain = Spool.summaries

    def pruned_after(self: Spool, first: int, last: int) -> object:
        yield from list(plain(self, first, last))
        spools.prune(spool, half)

    monkeypatch.setattr(Spool, "summaries", pruned_after)
    report = audited(spool, server)
    assert report.findings.total == 0, report.to_text()
    assert report.pruned == half - 1
    assert f"{half - 1} epochs were pruned" in report.to_text()


@pytest.mark.long
def test_a_gap_is_a_gap_and_no_finding(tmp_path: Path, server: ScriptedServer) -> None:
    path = tmp_path / "spool"
    spools.read_into(path, server, end=ORIGIN + 3 * SECOND)
    restart_at(Spool.at(path), ORIGIN + 6 * SECOND, now=ORIGIN + 20 * SECOND)
    spools.read_into(path, server)
    report = audited(path, server)
    assert report.findings.total == 0, report.to_text()
    assert [gap.watermark_high for gap in report.gaps] == [ORIGIN + 6 * SECOND - 1]
    assert 0 < report.findings.mods < 0.8 * MODS
    assert "gap: what was committed after" in report.to_text()


def test_a_range_is_audited_alone(spool: Path, server: ScriptedServer) -> None:
    altered(spool, lambda rows: without_transaction(rows, a_transaction(rows)))
    first, last = ORIGIN, ORIGIN + 2 * SECOND
    report = audited(spool, server, start=format_rfc3339(first), end=format_rfc3339(last))
    assert (report.findings.total, report.span.start, report.span.end) == (0, first, last)
    assert 0 < report.findings.mods < 0.4 * MODS


@pytest.mark.parametrize(("start", "end", "message"), [
    ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", "keeps no epochs of that range"),
    ("2099-01-01T00:00:00Z", None, "has not been reached"),
    (None, "2020-01-01T00:00:00Z", "is before the start"),
    ("yesterday", None, "is not a valid timestamp"),
])  # fmt: skip
def test_a_range_that_is_not_valid_is_refused(
    start: str | None, end: str | None, message: str, healthy: Path, server: ScriptedServer
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        audited(healthy, server, start=start, end=end)


def test_an_audit_needs_no_lock_and_writes_nothing(healthy: Path, server: ScriptedServer) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in healthy.rglob("*") if path.is_file()}

    before = contents()
    with sole_writer(Spool.at(healthy)):  # as its daemon holds it
        assert audited(healthy, server).findings.total == 0
    assert contents() == before


@pytest.mark.long
def test_a_spool_in_cloud_storage_is_audited(bucket: str, tmp_path: Path) -> None:
    scenario = drawn(13)
    path = f"{bucket}/a/spool"
    with serving(scenario) as server:
        config = written(tmp_path / "config.yaml", settings(server, spool=path))
        assert run("read", config, host=server.host).code == 0
        report = audited(path, server)
    assert report.findings.total == 0, report.to_text()
    assert report.findings.mods == len(scenario.committed)


def test_an_audit_that_is_stopped_does_not_say_that_nothing_is_wrong(healthy: Path, server: ScriptedServer) -> None:
    report = audited(healthy, server, stopped=True)
    assert (report.reached, report.findings.mods) == (None, 0)
    assert report.to_text().endswith("nothing was compared")


def test_a_spool_of_rows_as_of_one_timestamp_is_refused(spool: Path, server: ScriptedServer) -> None:
    stored = Spool.at(spool)
    first = stored.manifest(1)
    stored.storage.delete(*(manifest_path(epoch) for epoch in range(2, stored.latest() + 1)))
    at = first.model_copy(update={"watermark_low": first.watermark_high})
    stored.storage.replace(manifest_path(1), at.to_json())
    with pytest.raises(SpoolError, match="a backfill has read them"):
        audited(spool, server)


def test_a_place_without_a_spool_is_refused(tmp_path: Path, server: ScriptedServer) -> None:
    with pytest.raises(SpoolError, match="there is no spool at"):
        audited(tmp_path / "nothing", server)


@pytest.mark.long
def test_a_configuration_names_the_spool_and_filters_both_sides(tmp_path: Path) -> None:
    scenario = drawn()
    tables = sorted({mod.table for mod in scenario.committed})
    kept = tables[0]
    with serving(scenario) as server:
        path = tmp_path / "spool"
        node = settings(server, spool=path, source={"tables": {"include": [kept]}})
        spools.read_into(path, server, source={"tables": {"include": [kept]}})
        config = written(tmp_path / "config.yaml", node)
        report = audited(config, server)
        assert report.findings.total == 0, report.to_text()
        assert report.findings.mods == sum(mod.table == kept for mod in scenario.committed)
        by_path = audited(path, server)
        assert by_path.findings.counts[Kind.MISSING] > 0  # all of the stream
        assert "a spool does not know its filters" in by_path.to_text()

        other = written(tmp_path / "other.yaml", settings(server, spool=path, source={"change_stream": "Other"}))
        with pytest.raises(SpoolMismatchError):
            audited(other, server)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
def test_an_audit_reads_both_dialects_and_both_partition_modes(dialect: str, mode: str, tmp_path: Path) -> None:
    scenario = drawn(11, dialect=dialect, mode=mode)
    with serving(scenario) as server:
        spools.read_into(tmp_path / "spool", server)
        report = audited(tmp_path / "spool", server)
    assert report.findings.total == 0, report.to_text()
    assert report.findings.mods == len(scenario.committed)


def test_what_spanner_no_longer_retains_is_left_out_and_said(healthy: Path) -> None:
    hour = replace(SCENARIO, retention=3600 * SECOND)
    begins = ORIGIN + 3600 * SECOND - 10 * MINUTE + 4 * SECOND
    with ScriptedServer.started(hour, begins=begins) as server:
        report = audited(healthy, server)
    assert report.findings.total == 0, report.to_text()
    assert ORIGIN + 4 * SECOND < report.span.start < ORIGIN + 10 * SECOND
    assert "is not audited: change stream Everything can be read from 20" in report.notes[0]
    with ScriptedServer.started(hour, begins=ORIGIN + 7200 * SECOND) as server, pytest.raises(DataLostError):
        audited(healthy, server)


@pytest.mark.long
def test_what_spanner_still_returns_is_audited_whatever_its_retention_period_says(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer.started(SCENARIO, begins=ORIGIN + 3 * 86_400 * SECOND) as server:
        silent = audited(healthy, server)
        monkeypatch.setattr(information_schema, "_options", lambda _: [("retention_period", "1d")])
        stated = audited(healthy, server)
    assert [silent.findings.total, silent.notes, silent.span] == [0, [], stated.span]
    assert [stated.findings.total, stated.notes] == [0, []]


@pytest.mark.long
def test_a_sample_reads_some_minutes_only(tmp_path: Path) -> None:
    scenario = steady(5, origin=ORIGIN, seconds=1200, partitions=2, records_per_second_per_partition=2)
    with serving(scenario) as server:
        spools.read_into(tmp_path / "spool", server)
        report = audited(tmp_path / "spool", server, sample="20%")
        again = audited(tmp_path / "spool", server, sample="20%")
    assert report.findings.total == 0, report.to_text()
    assert 0 < report.findings.mods < 0.5 * 1200 * 4
    assert (report.spans, report.findings.mods) == (again.spans, again.findings.mods)
    assert len(report.spans) > 1


def test_the_command_prints_a_report_and_ends_with_1_if_there_are_findings(spool: Path, server: ScriptedServer) -> None:
    done = run("audit", spool, host=server.host)
    assert (done.code, done.out.decode().count("\n")) == (0, 1), done.err
    assert " INFO auditing " in done.err
    altered(spool, lambda rows: without_transaction(rows, a_transaction(rows)))
    done = run("audit", spool, "--json", host=server.host)
    report = json.loads(done.out)
    assert (done.code, report["findings"], report["findings_by_kind"]) == (1, 1, {"missing": 1})
    (finding,) = report["first_findings"]
    assert finding["kind"] == "missing"


def test_a_share_that_is_not_valid_is_refused(spool: Path, server: ScriptedServer) -> None:
    done = run("audit", spool, "--sample", "ten", "--from", "soon", host=server.host)
    assert done.code == 2
    assert "--from: 'soon' is not a valid timestamp" in done.complaint
    assert "--sample: 'ten' is not a valid share" in done.complaint


@pytest.mark.slow
def test_campaign_of_a_million_mods(tmp_path: Path) -> None:
    scenario = steady(
        4, origin=ORIGIN, seconds=125, partitions=16, records_per_second_per_partition=50, mods_per_record=10
    )
    with serving(scenario) as server:
        healthy = spools.read_into(tmp_path / "spool", server)
        report = audited(healthy, server)
        assert report.findings.total == 0, report.to_text()
        assert report.findings.mods > 950_000
        copytree(healthy, tmp_path / "damaged")
        altered(tmp_path / "damaged", lambda rows: without_transaction(rows, a_transaction(rows)))
        assert only(audited(tmp_path / "damaged", server)).kind is Kind.MISSING
