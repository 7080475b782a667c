"""Two tables, joined as of complete minutes, show no half of a transaction, whatever is killed when."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import LocalFile
from tests.spark_sink.cuts.file_deliveries import FileDeliveries
from tests.spark_sink.cuts.transfers import TOTAL, CutReader, Transfers, total_without_cuts
from tests.spark_sink.spools import SpoolMaker

MINUTES = 12


class KilledError(BaseException):
    """The sink's process ends there."""


class Writes:
    """The writes to disk: ``each`` is called after one; a kill ends the process before or after one."""

    def __init__(self, each: Callable[[], object]) -> None:
        self._each = each
        self.left = -1

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for kind, name in ((LocalStore, "create"), (LocalStore, "replace"), (LocalFile, "publish")):
                patch.setattr(kind, name, self._counting(getattr(kind, name)))
            yield

    def _counting(self, write: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: object, **named: object) -> None:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            write(*arguments, **named)
            self._each()

        return counted


@pytest.mark.parametrize("by_minute", [True, False])
def test_the_sum_is_right_in_every_cut_and_wrong_at_least_once_without(
    spool: SpoolMaker, tmp_path: Path, by_minute: bool
) -> None:
    root, random = tmp_path / "out", Random(7)
    transfers = Transfers(spool, random)
    reader = CutReader(root)
    sums: set[int] = set()

    def look() -> None:
        reader.read()
        sums.add(total_without_cuts(root))

    writes, done, kills = Writes(look), 0, 0
    for _ in range(MINUTES):
        last = transfers.minute()
        while done < last:
            end = last if by_minute else done + 1
            while True:
                writes.left = random.randrange(12) if random.random() < 0.5 else -1
                with suppress(KilledError), writes.watched():
                    FileDeliveries(spool, str(root), by_minute=by_minute).deliver(done + 1, end)
                    break
                kills += 1
            done = end
    assert kills >= 3
    assert (reader.cuts, reader.wrong) == (MINUTES, [])
    assert sums > {TOTAL}, "half a transaction is seen without cuts"
