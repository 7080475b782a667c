"""The emulator's skipped transactions and those that a reader lost are told apart, and no loss is excused."""

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import CommittedMod, Emulator, SampleDatabase, Workload
from emulator.demo.plain_stream import PlainMod, PlainRecords, committed_identity
from emulator.demo.reread import RereadError, rereader
from emulator.demo.skipped import CHOP, MOST_SKIPPED, Judgement, judge, missing_by_commit
from emulator.demo.wiretap import LiveQuery, Wiretap, WiretapError
from tests.integration.commands import configuration, run

ORIGIN = 1_790_000_000 * SECOND
MODS = [
    CommittedMod(ORIGIN + number * SECOND, number, "T", "INSERT", {"Id": f"{number}-{key}"}, {}, {}, {})
    for number in range(10)
    for key in range(3)
]
AT = ORIGIN + 4 * SECOND
WHOLE = {AT: 3}


def reread(start: int, end: int) -> list[PlainMod]:
    """Re-reads a range and finds every mod."""
    assert ORIGIN <= start <= end
    return [PlainMod(committed_identity(mod), "p") for mod in MODS if start <= mod.commit_timestamp_ns <= end]


def fails(_start: int, _end: int) -> list[PlainMod]:
    raise RereadError("the re-read failed: UNAVAILABLE: gone")


def live(*, lacks: int = AT, start: int = ORIGIN, most: int = ORIGIN + 9 * SECOND, heartbeat: int = 0) -> LiveQuery:
    """A query that returned everything except one transaction."""
    mods = [mod for mod in reread(start, most) if mod.commit_timestamp != lacks]
    return LiveQuery("p", start, None, PlainRecords(mods, [heartbeat] if heartbeat else []))


def assert_lost(judged: Judgement, mods: int, words: str) -> None:
    assert (judged.lost, judged.skipped) == (mods, ())
    assert words in "; ".join(judged.reasons)


def test_a_whole_transaction_that_a_bounded_reread_returns_counts_as_skipped() -> None:
    judged = judge(WHOLE, MODS, reread)
    assert (judged.lost, judged.skipped_mods, judged.reasons) == (0, 3, ())
    assert str(judged.skipped[0]) == f"{format_rfc3339(AT)} (3 mods, chops unknown)"


def test_without_missing_mods_nothing_is_reread() -> None:
    assert judge({}, MODS, fails, errors=["x ERROR y"]) == Judgement()


@pytest.mark.parametrize("lacking", [1, 2, 3, 6])
def test_what_a_bounded_reread_lacks_is_lost(lacking: int) -> None:
    def partly(start: int, end: int) -> list[PlainMod]:
        return reread(start, end)[: -min(lacking, 3)]

    assert_lost(judge(WHOLE, MODS, partly), 3, f"a bounded re-read lacks {min(lacking, 3)} of the transaction's 3 mods")


def test_a_reread_that_returns_other_mods_of_that_timestamp_excuses_nothing() -> None:
    def others(start: int, end: int) -> list[PlainMod]:
        return [replace(mod, identity=(*mod.identity[:3], "{}")) for mod in reread(start, end)]

    assert_lost(judge(WHOLE, MODS, others), 3, "lacks 3 of")


def test_a_part_of_a_transaction_is_lost() -> None:
    assert_lost(judge({AT: 2}, MODS, reread), 2, "2 of the transaction's 3 mods are missing")


def test_a_reread_that_fails_excuses_nothing_and_says_why() -> None:
    assert_lost(judge(WHOLE, MODS, fails), 3, "UNAVAILABLE: gone")


def test_more_than_a_few_missing_transactions_are_lost() -> None:
    few = {ORIGIN + number * SECOND: 3 for number in range(MOST_SKIPPED)}
    assert judge(few, MODS, reread).lost == 0
    assert_lost(judge({**few, AT: 3}, MODS, reread), 12, "too many")


def test_a_skipped_transaction_does_not_excuse_a_lost_one() -> None:
    judged = judge({AT: 3, AT + SECOND: 1}, MODS, reread)
    assert (judged.skipped_mods, judged.lost, len(judged.reasons)) == (3, 1, 1)


def test_nothing_counts_as_skipped_if_the_reader_logged_an_error() -> None:
    assert_lost(judge(WHOLE, MODS, reread, errors=["ERROR a transaction is incomplete"]), 3, "is incomplete")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (live(lacks=0), "the emulator sent it, and the reader lost it"),
        (live(start=AT + 1), "has not queried its partition"),
        (live(most=AT - 1), "has not queried its partition"),
        (replace(live(), token="another"), "has not queried its partition"),
    ],
)
def test_what_the_emulator_sent_or_was_not_queried_for_is_lost(query: LiveQuery, words: str) -> None:
    assert_lost(judge(WHOLE, MODS, reread, tapped=lambda: [query]), 3, words)


@pytest.mark.parametrize(
    ("query", "grid"),
    [
        (live(), "chops unknown"),
        (live(heartbeat=AT - 7 * CHOP), "on a chop's end"),
        (live(heartbeat=AT + 7 * CHOP), "on a chop's end"),
        (live(heartbeat=AT - 7 * CHOP + 1000), "not on a chop's end"),
        (live(start=AT - 100_000_000 - 5 * CHOP), "on a chop's end"),
    ],
)
def test_a_skipped_transaction_says_whether_it_is_on_a_chops_end(query: LiveQuery, grid: str) -> None:
    judged = judge(WHOLE, MODS, reread, tapped=lambda: [query])
    assert judged.lost == 0
    assert judged.skipped[0].grid == grid


def test_a_recording_that_cannot_be_decoded_excuses_nothing() -> None:
    def broken() -> list[LiveQuery]:
        raise WiretapError("a message is compressed")

    assert_lost(judge(WHOLE, MODS, reread, tapped=broken), 3, "a message is compressed")


def test_a_reread_ends_within_its_time_without_a_server() -> None:
    with pytest.raises(RereadError, match=r"UNAVAILABLE|DEADLINE_EXCEEDED"):
        rereader("127.0.0.1:1", "projects/p/instances/i/databases/d", "S", "googlesql", seconds=5)(ORIGIN, AT)


def test_a_reread_ends_within_its_time_if_the_server_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RereadError, match="DEADLINE_EXCEEDED"):
            rereader(host, "projects/p/instances/i/databases/d", "S", "googlesql", seconds=0.5)(ORIGIN, AT)
    with pytest.raises(RereadError, match="took too long"):
        rereader(host, "projects/p/instances/i/databases/d", "S", "googlesql", seconds=0)(ORIGIN, AT)


@pytest.mark.long(but=1)
@pytest.mark.emulator
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_on_the_emulator_a_reread_returns_every_mod_and_the_wire_shows_who_lost_one(
    emulator: Emulator, dialect: str, tmp_path: Path
) -> None:
    sample = SampleDatabase.create(emulator.host, dialect=dialect)
    workload = Workload(sample, seed=19)
    workload.run(seconds=4.0, rate=60)
    mods = workload.committed
    first, last = mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns
    again = rereader(sample.host, sample.path, sample.change_stream, sample.dialect)
    assert sorted(mod.identity for mod in again(first, last)) == sorted(map(committed_identity, mods))

    lost = mods[len(mods) // 2].commit_timestamp_ns
    delivered = [mod.commit_timestamp_ns for mod in mods if mod.commit_timestamp_ns != lost]
    missing = missing_by_commit(mods, delivered)
    with Wiretap.before(sample.host) as tap:
        source: Mapping[str, object] = {
            "emulator_host": tap.host,
            "start": format_rfc3339(first),
            "end": format_rfc3339(last),
        }
        assert run("read", configuration(tmp_path, sample, source=source)).code == 0
        assert_lost(judge(missing, mods, again, tapped=tap.queries), len(mods) - len(delivered), "the emulator sent it")
    assert {mod.commit_timestamp for query in tap.queries() for mod in query.records.mods} == {
        mod.commit_timestamp_ns for mod in mods
    }
    sample.drop()
