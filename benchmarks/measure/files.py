"""Counts the rows of files in a folder."""

from collections.abc import Callable
from pathlib import Path

import fastavro

from spark_sink.sinks.files.complete_minutes import FOLDER


def rows_below(folder: Path, file_format: str) -> int:
    """Returns the rows of the files of a format: ``jsonl``, which Spark's own writer calls json, or ``avro``."""
    found = folder.rglob(f"[!.]*.{file_format.removesuffix('l')}*")
    files = (path for path in found if FOLDER not in path.parts)
    return sum(_ROWS_OF[file_format](path) for path in files)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _avro_rows(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.num_records for block in fastavro.block_reader(file))


_ROWS_OF: dict[str, Callable[[Path], int]] = {"jsonl": _lines, "avro": _avro_rows}
