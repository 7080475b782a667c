"""Gaps of a spool: ranges of commit time whose records it will never have, recorded permanently.

If Spanner's retention ran out while nothing read the stream, the user chooses the timestamp from which reading
continues. That seals a gap: an epoch without records, from the spool's watermark to the chosen timestamp, whose cut is
the initial query there. The daemon continues from it as from any other epoch; consumers log it when they pass it.

The gap's manifest is pruned like any other, ``gaps.json`` is not. It is written after the manifest, and again by the
next writer of the spool, so that only the newest epoch may be a gap that is not in it.
"""

import secrets
from collections.abc import Iterable

from pydantic import Field

from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, SpoolError
from connector.spool.guards import create_epoch
from connector.spool.manifest import GAP_VERSION, CutToken, Document, DocumentPart, Gap, Manifest, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.writing import sole_writer

REASON = "restarted at a chosen timestamp"
_PATH = "gaps.json"


class GapRecord(DocumentPart):
    """A gap: what was committed in (watermark_low, watermark_high] is not in the spool."""

    epoch: int = Field(ge=1)
    watermark_low: Timestamp
    watermark_high: Timestamp
    reason: str
    recorded_at: Timestamp


class _Gaps(Document):
    """``gaps.json``."""

    gaps: tuple[GapRecord, ...]


def restart_at(spool: Spool, timestamp: int, *, now: int) -> GapRecord:
    """Seals a gap from the spool's watermark to ``timestamp``, from where the daemon continues.

    Args:
        spool: the spool; no daemon may write it.
        timestamp: Unix nanoseconds, inclusive.
        now: Unix nanoseconds.

    Raises:
        ConfigurationError: the spool has no epochs, or the timestamp leaves no gap, or it is in the future.
        SpoolInUseError: a daemon writes the spool.
        SpoolError: there is no spool, or the disk refuses.
    """
    try:
        header = spool.header()
    except FileNotFoundError as error:
        raise SpoolError(f"there is no spool at {spool.path}", hint="`spanner-cdc read CONFIG` makes one.") from error
    with sole_writer(spool):
        latest = spool.latest()
        if latest == 0:
            raise ConfigurationError(
                [f"--restart-at: the spool at {spool.path} has no epochs yet; set source.start instead"]
            )
        remember(spool)
        newest = spool.manifest(latest)
        text = format_rfc3339(timestamp)
        if timestamp <= newest.watermark_high + 1:
            ends = format_rfc3339(newest.watermark_high)
            close = f"is not after the spool's watermark {ends} by more than a nanosecond"
            raise ConfigurationError([f"--restart-at: {text} {close}: reading continues from there anyway"])
        if timestamp > now:
            raise ConfigurationError([f"--restart-at: {text} is in the future; it is {format_rfc3339(now)}"])
        manifest = Manifest(
            version=GAP_VERSION,
            epoch=latest + 1,
            spool_id=header.spool_id,
            source=header.source,
            watermark_low=newest.watermark_high,
            watermark_high=timestamp - 1,
            files=(),
            tables={},
            schema_keys=newest.schema_keys,
            cut=(CutToken(token=INITIAL_TOKEN, start_timestamp=timestamp),),
            gap=Gap(reason=REASON, recorded_at=now),
            writer=secrets.token_hex(8),
            sealed_at=now,
        )
        create_epoch(spool, manifest)
        return remember(spool)[-1]


def remember(spool: Spool) -> tuple[GapRecord, ...]:
    """Adds the newest epoch to ``gaps.json`` if it is a gap; returns all gaps. The caller holds the spool's lock."""
    latest = spool.latest()
    recorded = _recorded(spool)
    known = _with(recorded, spool.manifest(latest) if latest else None)
    if known != recorded:
        spool.storage.replace(_PATH, to_json(_Gaps(gaps=known)))
    return known


def gaps(spool: Spool, newest: Manifest | None) -> tuple[GapRecord, ...]:
    """All gaps that the spool has ever had, in order; ``newest`` is its newest epoch, which may be one."""
    return _with(_recorded(spool), newest)


def _with(recorded: Iterable[GapRecord], newest: Manifest | None) -> tuple[GapRecord, ...]:
    by_epoch = {record.epoch: record for record in recorded}
    if newest is not None and newest.gap is not None:
        by_epoch[newest.epoch] = GapRecord(
            epoch=newest.epoch,
            watermark_low=newest.watermark_low,
            watermark_high=newest.watermark_high,
            reason=newest.gap.reason,
            recorded_at=newest.gap.recorded_at,
        )
    return tuple(by_epoch[epoch] for epoch in sorted(by_epoch))


def _recorded(spool: Spool) -> tuple[GapRecord, ...]:
    found = spool.find(_PATH, _Gaps, "it has no valid field gaps")
    return found.gaps if found else ()
