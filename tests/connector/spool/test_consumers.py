import subprocess
import sys
from typing import IO

import pytest

from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.reading import Spool

HOLD_NAME = """
import sys
from connector.spool import consumers
from connector.spool.reading import Spool
with consumers.claimed(Spool.at(sys.argv[1]), "c"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def spool(spool_path: str) -> Spool:
    return Spool.at(spool_path)


def set_floor(spool: Spool, first: int) -> None:
    spool.storage.replace("floor.json", f'{{"version":1,"first":{first}}}'.encode())


def test_of_a_spool_that_nobody_reads_no_consumer_is_known(spool: Spool) -> None:
    assert consumers.consumers(spool) == []
    assert consumers.find(spool, "c") is None


def test_a_new_consumer_begins_with_the_oldest_epoch_that_is_kept(spool: Spool) -> None:
    assert consumers.register(spool, "c", now=5).epoch == 0
    set_floor(spool, 7)
    assert consumers.register(spool, "d", now=5).epoch == 6
    assert [(one.consumer, one.epoch, one.updated) for one in consumers.consumers(spool)] == [("c", 0, 5), ("d", 6, 5)]


def test_a_consumer_is_known_before_it_chooses_its_start(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    floors: list[bool] = []
    floor = Spool.floor

    def asked(self: Spool) -> int:
        floors.append(consumers.find(self, "c") is not None)
        return floor(self)

    monkeypatch.setattr(Spool, "floor", asked)
    consumers.register(spool, "c", now=5)
    assert floors[-1]


def test_a_floor_that_rose_while_it_registered_is_seen(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    floors = iter((1, 4))
    monkeypatch.setattr(Spool, "floor", lambda _: next(floors))
    assert consumers.register(spool, "c", now=5).epoch == 3


def test_a_consumer_that_comes_back_is_where_it_was(spool: Spool) -> None:
    consumers.register(spool, "c", now=5)
    consumers.record(spool, "c", 9, now=6)
    again = consumers.register(Spool(spool.storage), "c", now=7)
    assert (again.epoch, again.updated) == (9, 6)


def test_a_consumer_that_is_forgotten_keeps_nothing_any_more(spool: Spool) -> None:
    consumers.register(spool, "c", now=5)
    consumers.register(spool, "d", now=5)
    consumers.forget(spool, "c")
    assert [one.consumer for one in consumers.consumers(spool)] == ["d"]


def test_forgetting_one_that_is_not_there_names_those_that_are(spool: Spool) -> None:
    with pytest.raises(SpoolError, match=r"has no consumer 'c'\. Registered: none\."):
        consumers.forget(spool, "c")
    consumers.register(spool, "d", now=5)
    with pytest.raises(SpoolError, match=r"Registered: d\."):
        consumers.forget(spool, "c")


@pytest.mark.parametrize("ending", [consumers.STARTED, consumers.DESTINATION, consumers.REPORT, consumers.KEPT])
def test_a_sink_that_ended_before_its_first_epoch_is_forgotten_with_all_that_it_has_recorded(
    spool: Spool, ending: str
) -> None:
    spool.storage.replace(f"consumers/c{ending}", b"{}")
    consumers.forget(spool, "c")
    assert spool.storage.list("consumers") == []


@pytest.mark.parametrize("name", ["default", "a", "A.b-c_9", "x" * 100])
def test_a_name_of_ascii_characters_digits_dots_dashes_and_underscores_is_taken(spool: Spool, name: str) -> None:
    assert consumers.register(spool, name, now=5).consumer == name
    with consumers.claimed(spool, name):
        pass


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", ".tmp-a", "-a", "a b", "a\n", "ä", "x" * 101])
def test_any_other_name_is_refused_everywhere(spool: Spool, name: str) -> None:
    with pytest.raises(SpoolError, match="a name has up to 100 letters"):
        consumers.register(spool, name, now=5)
    with pytest.raises(SpoolError, match="a name has up to 100 letters"):
        consumers.record(spool, name, 1, now=5)
    with pytest.raises(SpoolError, match="a name has up to 100 letters"):
        consumers.forget(spool, name)
    with pytest.raises(SpoolError, match="a name has up to 100 letters"), consumers.claimed(spool, name):
        pytest.fail("the name was taken")


def test_a_second_query_of_one_name_is_refused(spool: Spool) -> None:
    with (
        consumers.claimed(spool, "c"),
        pytest.raises(SpoolInUseError, match=r"consumer 'c' of the spool at .* is in use by another query"),
        consumers.claimed(spool, "c"),
    ):
        pytest.fail("the name was taken twice")


def test_queries_of_two_names_do_not_meet(spool: Spool) -> None:
    with consumers.claimed(spool, "c"), consumers.claimed(spool, "d"):
        assert consumers.consumers(spool) == []


def _line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def test_the_name_of_a_query_that_was_killed_is_free(spool: Spool) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_NAME, spool.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert _line(holder.stdout) == b"held\n"
        with pytest.raises(SpoolInUseError, match=f"process {holder.pid}"), consumers.claimed(spool, "c"):
            pytest.fail("the name was taken twice")
        holder.kill()
        holder.wait()
        with consumers.claimed(spool, "c"):
            pass


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1}', b'{"version":1,"consumer":"c","epoch":-1,"updated":1}'])
def test_a_consumers_file_that_is_damaged_is_an_error(spool: Spool, data: bytes) -> None:
    spool.storage.replace("consumers/c.json", data)
    with pytest.raises(SpoolError, match=r"corrupt file .*consumers/c\.json"):
        consumers.find(spool, "c")


def test_a_consumer_of_a_newer_version_is_refused(spool: Spool) -> None:
    spool.storage.replace("consumers/c.json", b'{"version":2}')
    with pytest.raises(SpoolError, match="newer than this program's 1"):
        consumers.consumers(spool)
