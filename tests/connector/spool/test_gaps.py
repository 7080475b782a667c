"""A gap of a spool: how it is sealed, what refuses it, and how long it is known."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from connector.cli import cli
from connector.core.partitions import CutPartition
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import ConfigurationError, SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.gaps import GapRecord, gaps, remember, restart_at
from connector.spool.manifest import GAP_VERSION
from connector.spool.reading import Spool
from connector.spool.storage.store import FileStore
from connector.spool.writing import ResumePoint, checkpoint, initialize, sole_writer
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, KilledError, numbers, sealed, writer_of

LATER = AT + 5 * MINUTE
RECORDED = AT + 9 * MINUTE


@pytest.fixture
def spool(spool_path: str) -> Spool:
    """A spool of two epochs."""
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    sealed(writer_of(spool), 2)
    return spool


def known(spool: Spool) -> list[GapRecord]:
    return list(gaps(spool, spool.manifest(spool.latest()) if spool.latest() else None))


def prune_all_but_the_newest(spool: Spool) -> None:
    consumers.record(spool, "c", spool.latest(), now=NOW)
    writer_of(spool).retention.prune(now=NOW + 99 * MINUTE)


def test_a_gap_is_an_epoch_without_records_from_the_watermark_to_the_chosen_timestamp(spool: Spool) -> None:
    before = spool.manifest(2)
    gap = restart_at(spool, LATER, now=RECORDED)
    manifest = spool.manifest(3)
    assert (gap.watermark_low, gap.watermark_high) == (before.watermark_high, LATER - 1)
    assert (manifest.watermark_low, manifest.watermark_high) == (before.watermark_high, LATER - 1)
    assert (manifest.version, manifest.files, manifest.rows, manifest.final) == (GAP_VERSION, (), 0, False)
    assert manifest.gap is not None
    assert (manifest.gap.reason, manifest.gap.recorded_at) == (gap.reason, RECORDED)


def test_reading_continues_from_the_gap_with_the_initial_query_at_the_chosen_timestamp(spool: Spool) -> None:
    restart_at(spool, LATER, now=RECORDED)
    at = checkpoint(spool, spool.header())
    assert at == ResumePoint(3, LATER - 1, (CutPartition("", LATER),), (SINGERS,))
    sealed(writer_of(spool))
    assert numbers(spool) == [1, 2, 3, 4]


def test_a_gap_that_did_not_reach_far_enough_is_followed_by_another(spool: Spool) -> None:
    first = restart_at(spool, LATER, now=RECORDED)
    second = restart_at(spool, LATER + MINUTE, now=RECORDED)
    assert second.watermark_low == first.watermark_high
    assert known(spool) == [first, second]


@pytest.mark.parametrize("beyond", [-SECOND, 0, 1])
def test_a_timestamp_that_leaves_nothing_out_is_refused(spool: Spool, beyond: int) -> None:
    watermark = spool.manifest(2).watermark_high
    with pytest.raises(ConfigurationError, match=f"not after the spool's watermark {format_rfc3339(watermark)}"):
        restart_at(spool, watermark + beyond, now=RECORDED)
    assert numbers(spool) == [1, 2]


def test_a_timestamp_in_the_future_is_refused(spool: Spool) -> None:
    with pytest.raises(ConfigurationError, match="is in the future"):
        restart_at(spool, RECORDED + 1, now=RECORDED)


def test_a_spool_without_epochs_is_refused_a_gap(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="there is no spool at"):
        restart_at(Spool.at(tmp_path / "none"), LATER, now=RECORDED)
    assert not (tmp_path / "none").exists()
    empty = Spool.at(tmp_path / "spool")
    initialize(empty, NAME, AT, "now", [SINGERS])
    with pytest.raises(ConfigurationError, match=r"no epochs yet; set source\.start"):
        restart_at(empty, LATER, now=RECORDED)


def test_a_spool_that_a_daemon_writes_is_refused_a_gap(spool: Spool) -> None:
    with sole_writer(spool), pytest.raises(SpoolInUseError, match="written by another daemon"):
        restart_at(Spool(spool.storage), LATER, now=RECORDED)


def test_a_gap_is_known_after_its_manifest_was_pruned(spool: Spool) -> None:
    gap = restart_at(spool, LATER, now=RECORDED)
    sealed(writer_of(spool))
    prune_all_but_the_newest(spool)
    assert numbers(spool) == [4]
    assert known(spool) == [gap]


def test_a_spool_without_gaps_writes_no_list_of_them(spool: Spool) -> None:
    assert remember(spool) == ()
    assert not spool.storage.exists("gaps.json")


@pytest.mark.parametrize("who", ["the daemon", "another restart"])
def test_a_gap_whose_maker_died_after_the_manifest_is_remembered_by_the_next_writer(
    spool: Spool, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = type(spool.storage).replace

    def dying(storage: FileStore, path: str, data: bytes) -> None:
        if path == "gaps.json":
            raise KilledError
        replace(storage, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(type(spool.storage), "replace", dying)
        with pytest.raises(KilledError):
            restart_at(spool, LATER, now=RECORDED)
    (gap,) = known(spool)
    assert gap.epoch == 3
    if who == "the daemon":
        assert remember(spool) == (gap,)
    else:
        restart_at(spool, LATER + MINUTE, now=RECORDED)
    sealed(writer_of(spool))
    prune_all_but_the_newest(spool)
    assert gap in known(spool)


def test_a_restart_that_died_before_the_manifest_has_changed_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(storage: FileStore, path: str, data: bytes) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(type(spool.storage), "create", dying)
        with pytest.raises(KilledError):
            restart_at(spool, LATER, now=RECORDED)
    assert (numbers(spool), known(spool)) == ([1, 2], [])


@pytest.mark.parametrize("text", [b'{"version":1}', b'{"version":1,"gaps":[{}]}', b"{"])
def test_a_damaged_list_of_gaps_is_an_error(spool: Spool, text: bytes) -> None:
    spool.storage.replace("gaps.json", text)
    with pytest.raises(SpoolError, match=r"corrupt file .*gaps\.json"):
        remember(spool)


# The command.


@pytest.fixture
def spoken(spool: Spool) -> Callable[..., tuple[int, str]]:
    """Runs ``spanner-cdc spool PATH``: its exit code, and what it said; JSON without what was logged beside."""

    def run(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["spool", spool.path, *options])
        return done.exit_code, done.stdout if "--json" in options else done.output

    return run


def test_the_command_leaves_a_gap_that_the_report_has_as_text_and_as_json(
    spool: Spool, spoken: Callable[..., tuple[int, str]]
) -> None:
    low = format_rfc3339(spool.manifest(2).watermark_high)
    code, said = spoken("--restart-at", format_rfc3339(LATER))
    assert (code, f"epoch 3 is a gap: what was committed after {low} and before" in said) == (0, True)
    (gap,) = orjson.loads(spoken("--json")[1])["gaps"]
    assert (gap["epoch"], gap["watermark_low"]) == (3, low)
    assert gap["watermark_high"] == format_rfc3339(LATER - 1)
    assert f"GAP, epoch 3: ({low}, {format_rfc3339(LATER - 1)}] is missing" in spoken()[1]


def test_what_the_command_changes_is_said_as_json_too(spool: Spool, spoken: Callable[..., tuple[int, str]]) -> None:
    consumers.record(spool, "files", 1, now=AT)
    assert orjson.loads(spoken("--forget", "files", "--json")[1]) == {"forgotten": "files"}
    restarted = orjson.loads(spoken("--restart-at", format_rfc3339(LATER), "--json")[1])["gap"]
    (gap,) = orjson.loads(spoken("--json")[1])["gaps"]
    assert restarted == {name: gap[name] for name in restarted}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--restart-at", "now"), "'now' is not a valid RFC 3339 timestamp"),
        (("--restart-at", "2026-01-31"), "is not a valid RFC 3339 timestamp"),
        (("--restart-at", format_rfc3339(AT)), "is not after the spool's watermark"),
        (("--restart-at", "2999-01-01T00:00:00Z"), "is in the future"),
        (("--restart-at", format_rfc3339(LATER), "--forget", "c"), "exclude each other"),
    ],
)
def test_the_command_refuses_in_one_line_and_with_code_2(
    spool: Spool, spoken: Callable[..., tuple[int, str]], options: tuple[str, ...], words: str
) -> None:
    code, said = spoken(*options)
    assert (code, said.count("\n")) == (2, 1)
    assert words in said
    assert numbers(spool) == [1, 2]
