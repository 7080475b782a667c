"""Encodes what can be encoded of rows, and says why the others cannot: no event holds up the others."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from connector.errors import SpannerCdcError, SpoolError
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series
from spark_sink.errors import TableRefusedError

_NOT_OF_THE_ROWS = (SpoolError, OSError, MemoryError)
"""What would be met with other rows too: it ends the micro-batch, which is done again."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """Rows that were encoded, and of the others the index and the reason.

    ``stopped`` is why nothing of the table can be encoded, or empty.
    """

    rows: EncodedRows
    refused: list[tuple[int, str]]
    stopped: str = ""


def sifted(encoding: Encoding, series: Series, rows: pa.RecordBatch) -> Sifted:
    """Encodes rows of one series, all at once where nothing is wrong with any of them.

    Raises:
        SpoolError: the table's schema cannot be read.
    """
    try:
        return Sifted(encoding.encode(series, rows), [])
    except TableRefusedError as error:
        why = str(error)
        return Sifted(EncodedRows.joined([]), [(index, why) for index in range(rows.num_rows)], why)
    except _NOT_OF_THE_ROWS:
        raise
    except Exception:  # noqa: BLE001 - whatever one row brings about, the others are written
        refused = encoding.unfit(series, rows)
        rest = [index for index in range(rows.num_rows) if index not in refused]
        found = list(_halved(encoding, series, rows.take(pa.array(rest, pa.int64())), 0)) if rest else []
        refused |= {rest[at]: part for at, part in found if isinstance(part, str)}
        encoded = [part for _, part in found if isinstance(part, EncodedRows)]
        return Sifted(EncodedRows.joined(encoded), sorted(refused.items()))


def _halved(
    encoding: Encoding, series: Series, rows: pa.RecordBatch, first: int
) -> Iterator[tuple[int, EncodedRows | str]]:
    """Runs of rows that are encoded together, and rows that are refused; each with the index of its first row."""
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
    """Why a row is refused; the text of an error that is not ours might hold a value of it."""
    return str(error) if isinstance(error, SpannerCdcError) else f"it cannot be written: {type(error).__name__}"
