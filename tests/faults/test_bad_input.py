"""Invalid input is reported in one clear line, with the contract's exit code, and nothing is started."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
import yaml

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Workload
from tests.faults.proxy import Call, CallFault, proxied
from tests.integration.commands import Section, configuration, options, reading, run, watermark
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def sample(emulator: object) -> SampleDatabase:
    return SampleDatabase.create(emulator.host)  # type: ignore[attr-defined]


def ago(seconds: int) -> str:
    return format_rfc3339(time.time_ns() - seconds * SECOND)


@dataclass(frozen=True)
class Case:
    source: Section
    code: int
    words: tuple[str, ...]
    options: tuple[str, ...] = field(default=())


CASES = {
    "instance": Case({"instance": "no-such"}, 2, ("instance not found", "instances/no-such", "source.instance")),
    "database": Case({"database": "no-such"}, 2, ("database not found", "databases/no-such", "source.database")),
    "stream": Case({"change_stream": "NoSuch"}, 2, ("source.change_stream", "NoSuch", "it has: Everything")),
    "future": Case({"start": "2100-01-01T00:00:00Z"}, 2, ("source.start", "in the future")),
    "before-retention": Case({"start": "-8d"}, 3, ("no longer retained", "later source.start")),
    "before-the-stream": Case({"start": ago(12 * 3600)}, 2, ("source.start", "did not exist then", "it accepts is 20")),
    "end-before-start": Case(
        {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, 2, ("end 2026-01-01", "before start")
    ),
    "relative-end": Case({"start": "now", "end": "2026-01-01T00:00:00Z"}, 2, ("source.end", "before source.start")),
    "heartbeat": Case({"heartbeat": "301s"}, 2, ("source.heartbeat", "1s to 300s")),
    "tables": Case({"tables": {"include": ["Singers", "Typo*"]}}, 2, ("'Typo*'", "matches no table")),
}


@pytest.mark.long(but=4)
@pytest.mark.parametrize("name", CASES)
def test_read_rejects_it_in_one_line_that_names_the_error(name: str, sample: SampleDatabase, tmp_path: Path) -> None:
    case = CASES[name]
    done = run("read", configuration(tmp_path, sample, source=case.source))
    assert done.code == case.code, done.err
    assert all(word in done.complaint for word in case.words), done.complaint
    assert done.out == b""
    assert not (tmp_path / "spool" / "spool.json").exists()


@pytest.mark.parametrize("name", ["future", "before-retention", "stream"])
def test_tail_rejects_it_in_one_line_too(name: str, sample: SampleDatabase) -> None:
    case = CASES[name]
    done = run(
        *("tail", *options(sample), "--start", str(case.source.get("start", "now"))),
        *("--change-stream", str(case.source.get("change_stream", sample.change_stream))),
    )
    assert (done.code, done.out) == (case.code, b"")
    assert all(word.replace("source.", "--").replace("_", "-") in done.complaint for word in case.words), done.complaint


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", ["instance", "before-retention", "before-the-stream", "relative-end"])
def test_check_reports_what_the_configuration_points_at(name: str, sample: SampleDatabase, tmp_path: Path) -> None:
    case = CASES[name]
    done = run("check", configuration(tmp_path, sample, source=case.source))
    assert done.code == 2
    assert all(word in done.complaint for word in case.words), done.complaint


def test_check_reports_every_error_at_once(sample: SampleDatabase, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = configuration(
        tmp_path,
        sample,
        source={"tables": {"include": ["Typo*"], "exclude": ["Other"]}},
        spool={"path": str(tmp_path / "file")},
        sink={"path": str(tmp_path / "file" / "events")},
    )
    done = run("check", config)
    assert done.code == 2
    for word in ("'Typo*'", "'Other'", "spool.path", "sink.path"):
        assert word in done.complaint


@pytest.mark.parametrize("command", ["read", "check", "run"])
def test_every_error_of_a_configuration_is_reported_with_its_field(command: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "source": {
                    "project": "p",
                    "instance": "in",
                    "change_stream": "S",
                    "heartbeat": "50ms",
                    "strat": "now",
                },
                "spool": {"max_bytes": "ten", "pth": "x"},
                "status": {"port": 99999},
                "extra": 1,
            }
        )
    )
    done = run(command, config)
    assert done.code == 2
    fields = ("source.database", "source.heartbeat", "source.strat", "spool.max_bytes", "spool.pth", "status.port")
    assert all(f"{name}: " in done.complaint for name in (*fields, "extra"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source: {project: ${NO_SUCH_A}, instance: '${NO_SUCH_B}'}", ("NO_SUCH_A", "NO_SUCH_B")),
        ("source: [", ("not YAML",)),
        ("source", ("no mapping",)),
        (None, ("config.yaml", "there is no such file")),
    ],
    ids=["variables", "no-yaml", "no-mapping", "no-file"],
)
def test_a_file_that_is_not_a_configuration_is_rejected(
    text: str | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    if text is not None:
        config.write_text(text)
    done = run("read", config)
    assert done.code == 2
    assert all(word in done.complaint for word in words)


def test_a_variable_in_a_comment_is_not_needed(sample: SampleDatabase, tmp_path: Path) -> None:
    config = configuration(tmp_path, sample, source={"start": "now", "end": "now"})
    config.write_text(f"# instead: ${{NO_SUCH}}\n{config.read_text()}")
    assert run("check", config).code == 0


def test_a_start_by_the_calendar_and_an_end_by_the_clock_are_compared_by_spanners_clock(
    sample: SampleDatabase, tmp_path: Path
) -> None:
    done = run("read", configuration(tmp_path, sample, source={"start": ago(0), "end": "now"}))
    assert done.code == 0, done.err


NAMED = (
    "--project",
    "a-project",
    "--instance",
    "an-instance",
    "--database",
    "a-database",
    "--change-stream",
    "Everything",
)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tail", "--strat", "now"), ("--strat",)),
        (("tail",), ("--project",)),
        (("read",), ("CONFIG",)),
        (("no-such",), ("no-such",)),
        (("statis",), ("Did you mean 'status'?",)),
        (("status", "missing.yaml"), ("missing.yaml: there is no such file",)),
        (("tail", *NAMED, "--start", "yesterday"), ("--start: 'yesterday' is not a valid timestamp",)),
        (("spool", ".", "--log-format", "xml"), ("--log-format",)),
    ],
)
def test_invalid_usage_is_rejected_in_one_line(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert all(word in done.complaint for word in words)


@pytest.mark.long
def test_a_spool_of_another_stream_is_rejected(sample: SampleDatabase, tmp_path: Path) -> None:
    config = configuration(tmp_path, sample, source={"start": "now", "end": "now"})
    assert run("read", config).code == 0
    header = (tmp_path / "spool" / "spool.json").read_text()
    (tmp_path / "spool" / "spool.json").write_text(header.replace(sample.database_id, "another"))
    for command in ("read", "check"):
        done = run(command, config)
        assert done.code == 2
        assert "holds change stream" in done.complaint
        assert "another spool.path" in done.complaint


@pytest.mark.parametrize(
    ("matches", "words"),
    [
        (lambda call: call.method.endswith("CreateSession"), ("permission denied on projects/",)),
        (lambda call: call.reads_changes, ("permission denied on change stream Everything",)),
    ],
    ids=["session", "stream"],
)
def test_a_missing_permission_is_reported_with_the_role_that_helps(
    matches: Callable[[Call], bool], words: tuple[str, ...], sample: SampleDatabase, tmp_path: Path
) -> None:
    denied = CallFault(
        grpc.StatusCode.PERMISSION_DENIED, "Caller is missing IAM permission", matches=matches, times=1000
    )
    with proxied(sample.host, denied) as proxy:
        config = configuration(tmp_path, sample, source={"emulator_host": proxy.host})
        done = run("read", config)
        assert done.code == 1
        assert all(word in done.complaint for word in (*words, "roles/spanner.databaseReader"))
        assert run("check", config).code == 2
    assert denied.injected


@pytest.mark.long
def test_a_permission_that_is_revoked_while_reading_ends_the_daemon_with_what_was_sealed(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=41)
    with proxied(sample.host) as proxy:
        source: Section = {"start": ago(0), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            workload.run(mods=30)
            last = workload.committed[-1].commit_timestamp_ns
            daemon.until(lambda: watermark(tmp_path / "spool") >= last, "all sealed")
            proxy.inject(CallFault(grpc.StatusCode.PERMISSION_DENIED, "no", matches=_any, times=1000))
            done = daemon.wait()
            assert done.code == 1
            assert "permission denied" in done.complaint
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)
    workload.run(mods=30)
    end = configuration(tmp_path, sample, source={"start": source["start"], "end": last_commit(workload)})
    assert run("read", end).code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


def _any(call: Call) -> bool:
    return True


def test_an_offset_before_the_stream_starts_with_the_stream_and_says_so(sample: SampleDatabase, tmp_path: Path) -> None:
    sample.database.run_in_transaction(lambda transaction: transaction.insert("Singers", ["SingerId"], [[987654]]))
    done = run("tail", *options(sample), "--change-stream", sample.change_stream, "--start", "-12h", "--end", "now")
    assert done.code == 0, done.err
    assert 987654 in [event["payload"].get("SingerId") for event in done.events]  # type: ignore[attr-defined]
    assert "the change stream is younger than the start" in done.err
    read = run("read", configuration(tmp_path, sample, source={"start": "-12h", "end": "now"}))
    assert read.code == 0, read.err
    assert "the change stream is younger than the start" in read.err
