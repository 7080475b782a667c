"""Encodes the rows that can be encoded and gives a reason for each other one: no event blocks the others."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from connector.errors import EventError, SpannerCdcError, SpoolError
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series
from spark_sink.errors import TableRefusedError

_NOT_OF_THE_ROWS = (SpoolError, OSError, MemoryError)
"""Errors that other rows would cause too: they end the micro-batch, which is repeated."""


@dataclass(frozen=True, slots=True)
class EncodingResult:
    """The outcome of encoding rows.

    Attributes:
        rows: those that were encoded.
        rejected: the index and the reason of each other row.
        stopped: why no row of the table can be encoded, or empty.
    """

    rows: EncodedRows
    rejected: list[tuple[int, str]]
    stopped: str = ""


def encode_rows(encoding: Encoding, series: Series, rows: pa.RecordBatch) -> EncodingResult:
    """Encodes rows of one series, all at once if none of them is rejected.

    Raises:
        SpoolError: the table's schema cannot be read.
    """
    try:
        return EncodingResult(encoding.encode(series, rows), [])
    except TableRefusedError as error:
        why = str(error)
        return EncodingResult(EncodedRows.joined([]), [(index, why) for index in range(rows.num_rows)], why)
    except _NOT_OF_THE_ROWS:
        raise
    except Exception:  # noqa: BLE001 - whatever error one row causes, the others are written
        rejected = encoding.unfit(series, rows)
        rest = [index for index in range(rows.num_rows) if index not in rejected]
        found = list(_halved(encoding, series, rows.take(pa.array(rest, pa.int64())), 0)) if rest else []
        rejected |= {rest[at]: part for at, part in found if isinstance(part, str)}
        encoded = [part for _, part in found if isinstance(part, EncodedRows)]
        return EncodingResult(EncodedRows.joined(encoded), sorted(rejected.items()))


def _halved(
    encoding: Encoding, series: Series, rows: pa.RecordBatch, first: int
) -> Iterator[tuple[int, EncodedRows | str]]:
    """Runs of rows that are encoded together, and reasons of rejected rows; each with the index of its first row."""
    try:
        yield first, encoding.encode(series, rows)
    except _NOT_OF_THE_ROWS:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        if rows.num_rows == 1:
            yield first, _reason(error)
            return
        half = rows.num_rows // 2
        yield from _halved(encoding, series, rows.slice(0, half), first)
        yield from _halved(encoding, series, rows.slice(half), first + half)


def _reason(error: Exception) -> str:
    """The reason why a row is rejected, without texts of other libraries, which might hold one of its values."""
    if isinstance(error, EventError):
        return error.reason
    return str(error) if isinstance(error, SpannerCdcError) else f"it cannot be written: {type(error).__name__}"
