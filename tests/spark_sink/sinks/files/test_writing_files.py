"""The creation of a file: private, never half visible, and after a killed writer."""

import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_sink.errors import SinkError
from spark_sink.sinks.files.plan import FileOptions
from spark_sink.sinks.files.writer import destination_at
from tests.spark_sink.sinks.files.written import contents, written
from tests.spark_sink.spools import SpoolMaker


def test_files_are_private(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    (file,) = written(spool, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out" / file.path).stat().st_mode) == 0o600


def test_what_a_killed_writer_left_is_removed(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    (file,) = written(spool, tmp_path / "out")
    before = contents(tmp_path / "out")
    whole = tmp_path / "out" / file.path
    whole.with_name(f".{whole.name}.0a1b2c3d.tmp").write_bytes(b"half")
    whole.unlink()
    written(spool, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_file_that_was_removed_while_it_rested_is_not_created_with_its_tail(tmp_path: Path) -> None:
    whole, swept = destination_at(str(tmp_path)), destination_at(str(tmp_path)).begin("d_T/a.jsonl")
    swept.append(b"one\n")
    swept.rest()
    other = whole.begin("d_T/a.jsonl")  # of a replay, which takes the first for dead
    other.append(b"one\ntwo\n")
    other.rest()
    other.publish()
    with pytest.raises(SinkError, match=r"cannot write .*d_T/a\.jsonl: No such file"):
        swept.append(b"two\n")
    swept.abandon()
    assert contents(tmp_path) == {"d_T/a.jsonl": b"one\ntwo\n"}


def test_a_file_that_rested_continues_where_it_was(tmp_path: Path) -> None:
    file = destination_at(str(tmp_path)).begin("a")
    for piece in (b"one\n", b"two\n"):
        file.append(piece)
        file.rest()
    file.publish()
    assert contents(tmp_path) == {"a": b"one\ntwo\n"}


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes past a size fail, as on a full disk."""
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_disk_that_refuses_leaves_nothing_behind_and_the_replay_completes(
    spool: SpoolMaker, tmp_path: Path, *, compressed: bool
) -> None:
    spool.fill(3, rows=900)
    shape = FileOptions(gzip=compressed, rotate_bytes=250_000_000, by_minute=True)
    (expected,) = written(spool, tmp_path / "whole", shape)
    with no_file_larger_than(20_000), pytest.raises(SinkError, match="cannot write"):
        written(spool, tmp_path / "out", shape)
    assert contents(tmp_path / "out") == {}
    assert written(spool, tmp_path / "out", shape) == [expected]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_path_that_is_no_folder_is_one_line_with_the_way_out(
    spool: SpoolMaker, tmp_path: Path, make_spool: Callable[..., SpoolMaker]
) -> None:
    spool.fill(1)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkError) as caught:
        written(spool, tmp_path / "out")
    assert str(caught.value).startswith(f"cannot write {tmp_path}/out/d_Singers/2026/03/01/10/00/")
    assert str(caught.value).endswith("or choose another with sink.path.")
