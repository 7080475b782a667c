"""Stores late records of a share in the spool, from wherever the share is read."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from connector.core.epoch import IncompleteTransaction
from connector.core.late_records import LateRecord
from connector.spool.late_store import LateStore
from connector.spool.reading import Spool


@dataclass
class LateDeadLetters:
    """A store of late records. Several shares may write it at a time: a record's document is named by its contents.

    Attributes:
        spool: the spool's path, which is opened when the first late record comes.
        continues: whether the reader continues after a late record is stored.
    """

    spool: str
    continues: bool
    _store: LateStore | None = field(default=None, init=False)

    async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
        """Stores late records durably.

        Raises:
            StreamError: too many are stored; these are stored all the same.
            SpoolError: the store cannot be written.
        """
        if self._store is None:
            self._store = LateStore(await asyncio.to_thread(Spool.at, self.spool))
        await asyncio.to_thread(partial(self._store.keep, late, now=time.time_ns()))
