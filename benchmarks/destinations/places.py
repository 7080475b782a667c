"""The places that a table is copied to: how the sink and the plain way write each, and how many rows have arrived."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.destinations import copying
from benchmarks.destinations.copying import Sink
from benchmarks.destinations.library import Parts
from benchmarks.measure.files import rows_below
from benchmarks.measure.subject import Measure, Measuring


class Target(Protocol):
    """An empty place: the destination of one copy."""

    @property
    def sink(self) -> Sink:
        """The section ``sink`` that writes it."""

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        """Measures the plain way."""

    def rows(self, spark: Measuring) -> int:
        """The rows that have arrived."""


class Place(Protocol):
    """A kind of destination."""

    def target(self, folder: str) -> AbstractContextManager[Target]:
        """An empty target; the folder is its own."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a format of the file sink."""

    file_format: str

    @contextmanager
    def target(self, folder: str) -> Iterator[Target]:
        """A folder for files."""
        yield _FilesTarget(f"{folder}/out", self.file_format)


@dataclass(frozen=True, slots=True)
class _FilesTarget:
    folder: str
    file_format: str

    @property
    def sink(self) -> Sink:
        return {"type": "files", "path": self.folder, "format": self.file_format}

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        return spark.run(copying.to_sparks_files, parts, self.folder, self.file_format)

    def rows(self, _: Measuring) -> int:
        return rows_below(Path(self.folder), self.file_format)
