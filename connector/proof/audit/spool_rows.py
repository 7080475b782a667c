"""Reads the epochs of a spool for an audit. Whatever is wrong with them is a finding, and not an error.

The spool may be live: nothing is locked, and epochs that its daemon prunes meanwhile are left out of the comparison.
"""

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.filters import RecordFilter
from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolError
from connector.proof.audit.findings import AuditFindings, EpochFinding
from connector.proof.audit.rows import ComparableRows, NotComparableError
from connector.proof.audit.spans import CommitSpan
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.summaries import EpochSummary


@dataclass(frozen=True, slots=True)
class AuditedEpoch:
    """The rows of an epoch, in order; None where it cannot be compared: it is pruned, damaged, or a gap."""

    low: int
    high: int
    parts: tuple[ComparableRows, ...] | None


@dataclass(frozen=True, slots=True)
class ComparablePart:
    """The spool's rows of a range of commit time, and the ranges (low, high] that cannot be compared."""

    rows: ComparableRows
    left_out: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Index:
    """Number, watermark_low and watermark_high of each epoch, in order; compact, because there may be a million."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    lows: "array[int]" = field(default_factory=lambda: array("q"))
    highs: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, one: EpochSummary | Manifest) -> None:
        self.numbers.append(one.epoch)
        self.lows.append(one.watermark_low)
        self.highs.append(one.watermark_high)


class AuditedSpool:
    """The epochs that a spool has when the audit begins.

    Args:
        spool: the spool.
        header: its header.
        keeps: selects the rows that are compared.
        findings: receives what is wrong with epochs.

    Attributes:
        epochs: how many epochs have been read.
        pruned: how many were pruned before they could be read.

    Raises:
        SpoolError: it has no epochs, or those of a backfill, or its folder cannot be read.
    """

    def __init__(self, spool: Spool, header: SpoolHeader, keeps: RecordFilter, findings: AuditFindings) -> None:
        self._spool = spool
        self._header = header
        self._keeps = keeps
        self._findings = findings
        self.epochs = self.pruned = 0
        self._index = self._indexed(spool.latest())
        if not self._index.numbers:
            raise SpoolError(
                f"the spool at {spool.path} has no epochs yet", hint="Audit it once its daemon has sealed some."
            )
        if self.high <= self.low:
            raise SpoolError(
                f"the spool at {spool.path} holds rows as of one timestamp, not changes: a backfill has read them",
                hint="`spanner-cdc verify CONFIG` compares what was delivered with Spanner's rows.",
            )
        self._check_neighbours()

    @property
    def low(self) -> int:
        """The low watermark of the oldest epoch that is kept; Unix nanoseconds."""
        return self._index.lows[0]

    @property
    def high(self) -> int:
        """The newest epoch's watermark; nanoseconds since 1970."""
        return self._index.highs[-1]

    def rows(self, span: CommitSpan) -> "SpanRows":
        """The rows of a span."""
        return SpanRows(self._epochs_of(span), span)

    def _indexed(self, latest: int) -> _Index:
        floor, index = self._spool.floor(), _Index()
        try:
            for one in self._spool.summaries(floor, latest):
                index.add(one)
        except SpoolError:  # a manifest is damaged, or epochs were pruned meanwhile
            index = _Index()
            for epoch in range(floor, latest + 1):
                manifest = self._manifest(epoch)
                if manifest is not None:
                    index.add(manifest)
            self.pruned = 0  # what is gone already is not part of the audit
        return index

    def _check_neighbours(self) -> None:
        index = self._index
        numbers, lows, highs = (np.frombuffer(column, np.int64) for column in (index.numbers, index.lows, index.highs))
        for place in np.flatnonzero(lows[1:] != highs[:-1]).tolist():
            if numbers[place + 1] == numbers[place] + 1:  # else the epoch between them has its own finding
                self._find(
                    int(numbers[place + 1]),
                    f"it begins after {format_rfc3339(int(lows[place + 1]))}, but epoch {int(numbers[place])} ends at"
                    f" {format_rfc3339(int(highs[place]))}",
                )

    def _epochs_of(self, span: CommitSpan) -> Iterator[AuditedEpoch]:
        index = self._index
        reached = span.start - 1
        for place in range(bisect_left(index.highs, span.start), len(index.numbers)):
            if index.lows[place] >= span.end:
                break
            if index.lows[place] > reached:  # an epoch is missing or damaged
                yield AuditedEpoch(reached, index.lows[place], None)
            yield self._epoch(index.numbers[place], index.lows[place], index.highs[place])
            reached = index.highs[place]
        if reached < span.end:
            yield AuditedEpoch(reached, span.end, None)

    def _epoch(self, number: int, low: int, high: int) -> AuditedEpoch:
        """Reads an epoch whose range is known from before."""
        manifest = self._manifest(number)
        if manifest is None or manifest.gap is not None:
            return AuditedEpoch(low, high, None)
        if (manifest.watermark_low, manifest.watermark_high) != (low, high):
            self._find(number, "its manifest was replaced by one with another range")
            return AuditedEpoch(low, high, None)
        try:
            batches = (batch for file in manifest.files for batch in self._spool.batches(file))
            parts, in_order = ComparableRows.parts(batches)
        except (SpoolError, pa.ArrowException, ValueError, KeyError, OSError) as error:
            if not self._is_pruned(number):
                self._find(number, _text(error))
            return AuditedEpoch(low, high, None)
        self.epochs += 1
        self._check(manifest, parts, in_order=in_order)
        return AuditedEpoch(low, high, tuple(part.between(low, high).filtered(self._keeps) for part in parts))

    def _manifest(self, number: int) -> Manifest | None:
        """The manifest of an epoch; None if it is pruned, or if there is a finding."""
        try:
            return self._spool.manifest(number)
        except FileNotFoundError:
            problem = "its manifest is missing"
        except SpoolError as error:
            problem = _text(error)
        if not self._is_pruned(number):
            self._find(number, problem)
        return None

    def _is_pruned(self, number: int) -> bool:
        if number >= self._spool.floor():
            return False
        self.pruned += 1
        return True

    def _check(self, manifest: Manifest, parts: tuple[ComparableRows, ...], *, in_order: bool) -> None:
        """Compares an epoch with what its manifest says of it."""
        if manifest.spool_id != self._header.spool_id:
            self._find(manifest.epoch, f"it belongs to spool {manifest.spool_id}, not {self._header.spool_id}")
        if manifest.source != self._header.source:
            self._find(manifest.epoch, f"it is of change stream {manifest.source}")
        if not in_order:
            self._find(manifest.epoch, "its rows are not in commit order")
        rows, tables = sum(map(len, parts)), Counter[str]()
        for part in parts:
            counts = pc.value_counts(part.column("object")).to_pylist()
            tables.update({one["values"]: one["counts"] for one in counts})
        if rows != manifest.rows or tables != manifest.tables:
            self._find(manifest.epoch, f"its {rows} rows are not the {manifest.rows} that its manifest counts by table")
        outside = rows - sum(len(part.between(manifest.watermark_low, manifest.watermark_high)) for part in parts)
        if outside:
            self._find(manifest.epoch, f"{outside} of its rows were committed outside its range")
        numbers = [part.column("epoch").fill_null(-1).to_numpy() for part in parts]
        strangers = sum(int(np.count_nonzero(of_part != manifest.epoch)) for of_part in numbers)
        if strangers:
            self._find(manifest.epoch, f"{strangers} of its rows have the number of another epoch")

    def _find(self, epoch: int, problem: str) -> None:
        self._findings.add([EpochFinding(epoch, problem)])


class SpanRows:
    """The spool's rows of a span, in the parts that are asked for; holds about one epoch.

    Args:
        epochs: the epochs, in order and without a break.
        span: the span.
    """

    def __init__(self, epochs: Iterable[AuditedEpoch], span: CommitSpan) -> None:
        self._epochs = iter(epochs)
        self._held: deque[AuditedEpoch] = deque()
        self._read_to = self._taken_to = span.start - 1

    def upto(self, high: int) -> ComparablePart:
        """The rows that were committed after the previous part, up to ``high``."""
        while self._read_to < high:
            epoch = next(self._epochs, None)
            if epoch is None:
                break
            self._held.append(epoch)
            self._read_to = max(self._read_to, epoch.high)
        rows = [part.between(self._taken_to, high) for one in self._held for part in one.parts or ()]
        left_out = tuple((one.low, one.high) for one in self._held if one.parts is None)
        while self._held and self._held[0].high <= high:
            self._held.popleft()
        self._taken_to = high
        return ComparablePart(ComparableRows.joined(rows), left_out)


def _text(error: Exception) -> str:
    """The error of a file as text. Arrow's errors are only named, because they may hold what is in the file."""
    if isinstance(error, SpoolError | NotComparableError):
        return str(error.args[0])
    return f"its rows cannot be read ({type(error).__name__})"
