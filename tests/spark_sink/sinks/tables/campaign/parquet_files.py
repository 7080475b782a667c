"""Files of Parquet as the destination of the campaign."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from connector.spool.reading import Spool


class ParquetFiles:
    """Appended changes below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spark_config: dict[str, str] = {}

    def sink(self) -> dict[str, object]:
        return {"type": "tables", "format": "parquet", "mode": "append", "path": str(self._folder)}

    def compared(self, spool: Spool) -> tuple[int, str]:
        """The number of changes in the spool, and the faults of the files: each change must be in them once."""
        expected = Counter(
            event
            for manifest in spool.manifests(spool.floor(), spool.latest())
            for file in manifest.files
            for rows in spool.batches(file)
            for event in zip(rows.column("object").to_pylist(), rows.column("uuid").to_pylist(), strict=True)
        )
        found = Counter(
            (path.parent.name, uuid)
            for path in self._folder.glob("[!_]*/*.parquet")
            for uuid in pq.read_table(path, columns=["_uuid"]).column("_uuid").to_pylist()
        )
        assert max(expected.values()) == 1
        missing, more = expected - found, found - expected
        wrong = f"{missing.total()} changes are missing, {more.total()} too many: {[*missing, *more][:5]}"
        return expected.total(), wrong if missing or more else ""

    def close(self) -> None:
        """Nothing is open."""
