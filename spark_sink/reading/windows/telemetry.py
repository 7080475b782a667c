"""Metrics and logs of windows: those of the one-process reader, and those of shares."""

import time
from collections.abc import Sequence

from connector.core.timestamps import SECOND, format_rfc3339
from connector.core.windows import Share, ShareReport, Window
from connector.log import Log
from connector.telemetry.metrics import ReaderMetrics, TableCount
from spark_sink.reading.windows.job import ReadWindow

_HOT = 6
"""Windows in a row whose slowest share takes longer than their span before that is a warning."""

_log = Log(__name__)


class WindowTelemetry:
    """Counts windows.

    Args:
        metrics: those of the reader.
    """

    def __init__(self, metrics: ReaderMetrics) -> None:
        self._metrics = metrics
        self._hot_windows = 0

    def reading(self, window: Window, shares: Sequence[Share]) -> None:
        """A window is read from now on, perhaps once more."""
        self._metrics.window_in_progress = {
            **_span(window),
            "since": format_rfc3339(time.time_ns()),
            "shares": len(shares),
            "partitions": sum(len(share.cut) for share in shares),
        }

    def sealed(self, window: Window, found: ReadWindow, partitions: int, behind: int) -> None:
        """A window was sealed.

        Args:
            window: it.
            found: what was read.
            partitions: in the cut at its end.
            behind: nanoseconds between its end and Spanner's clock.
        """
        metrics, reports, span = self._metrics, found.reports, window.high - window.low
        slowest = max(reports, key=lambda report: report.seconds)
        metrics.watermark = metrics.sealed_watermark = window.high
        metrics.partitions, metrics.shares, metrics.window_span = partitions, len(reports), span
        metrics.slowest_share_seconds = slowest.seconds
        metrics.window = {
            **_span(window),
            "behind_seconds": round(behind / SECOND, 3),
            "slowest_share": slowest.share,
            "shares": [_described(report) for report in sorted(reports, key=lambda report: report.share)],
        }
        metrics.window_in_progress = {}
        metrics.epochs += 1
        metrics.queries += sum(report.queries for report in reports)
        metrics.retries += sum(report.retries for report in reports)
        metrics.records += sum(report.records for report in reports)
        metrics.sealed_mods += sum(found.tables.values())
        for table, mods in found.tables.items():
            metrics.tables.setdefault(table, TableCount()).mods += mods
        metrics.mods_by_type.update(found.mod_types)
        metrics.sealed_files(found.files)
        is_hot = slowest.seconds > span / SECOND and len(slowest.bytes_of) == 1 and len(reports) > 1
        self._hot_windows = self._hot_windows + 1 if is_hot else 0
        if self._hot_windows == _HOT:
            _log.warning(
                "one partition takes longer to read than its window spans, and cannot be divided: Spanner divides it"
                " if its load lasts; more executors do not help",
                seconds=round(slowest.seconds, 1),
                span_s=round(span / SECOND, 1),
            )
        _log.debug(
            "window sealed",
            epoch=window.epoch,
            watermark=format_rfc3339(window.high),
            span_s=round(span / SECOND, 3),
            behind_s=round(behind / SECOND, 1),
            shares=len(reports),
            slowest_share_s=round(slowest.seconds, 2),
            bytes=sum(report.bytes for report in reports),
            mods=sum(found.tables.values()),
            segments=len(found.files),
            partitions=partitions,
        )

    def slow(self, window: Window, shares: int, seconds: float) -> None:
        """Logs that a window is still being read after so many seconds."""
        _log.warning(
            "a window is still being read: Spark's UI shows its tasks, or that no executor has a free core",
            epoch=window.epoch,
            low=format_rfc3339(window.low),
            high=format_rfc3339(window.high),
            shares=shares,
            seconds=round(seconds),
        )


def _span(window: Window) -> dict[str, object]:
    return {"epoch": window.epoch, "after": format_rfc3339(window.low), "up_to": format_rfc3339(window.high)}


def _described(report: ShareReport) -> dict[str, object]:
    """A share on the status page: the partitions that it has read, and what they had."""
    read = {*(at.token for at in report.cut), *report.followed, *report.finished}
    return {
        "share": report.share,
        "partitions": len(read),
        "records": report.records,
        "bytes": report.bytes,
        "seconds": round(report.seconds, 3),
    }
