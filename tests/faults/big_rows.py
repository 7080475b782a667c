"""Commits large rows of random bytes, which no compression makes smaller."""

import base64
import os
import threading
import time

from connector.core.timestamps import SECOND
from emulator import CommittedMod, SampleDatabase

MB = 1_000_000
VALUE = 60_000
"""Characters of a value."""


class BigRows:
    """Commits rows to a table of its own."""

    def __init__(self, sample: SampleDatabase) -> None:
        sample.run_ddl("CREATE TABLE Big (Id INT64 NOT NULL, Data STRING(MAX)) PRIMARY KEY (Id)")
        self._database = sample.database
        self.committed: list[CommittedMod] = []

    @property
    def count(self) -> int:
        """The number of rows; their ids count from 0."""
        return len(self.committed)

    @property
    def last_commit_ns(self) -> int:
        return self.committed[-1].commit_timestamp_ns

    def commit(self, rows_per_commit: int = 10) -> None:
        with self._database.batch() as batch:
            data = [base64.b64encode(os.urandom(VALUE * 3 // 4)).decode() for _ in range(rows_per_commit)]
            batch.insert("Big", ["Id", "Data"], [[self.count + at, text] for at, text in enumerate(data)])
        stamp = batch.committed.timestamp_pb()
        at, first = int(stamp.seconds) * SECOND + int(stamp.nanos), self.count
        self.committed += [
            CommittedMod(at, first, "Big", "INSERT", {"Id": str(first + number)}, {}, {}, {})
            for number in range(rows_per_commit)
        ]

    def commit_bytes(self, size: int) -> None:
        """Commits so many bytes, at most 20 MB/s: the emulator fails a partition with more than 128 MB waiting."""
        began, first = time.monotonic(), self.count
        while (written := (self.count - first) * VALUE) < size:
            threading.Event().wait(max(written / (20 * MB) - (time.monotonic() - began), 0))
            self.commit()
