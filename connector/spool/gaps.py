"""Gaps of a spool: ranges of commit time whose records it will never have, each on record for good.

Where Spanner's retention has run out while nobody read, somebody has to say from when on to read again. That seals a
gap: an epoch without records, from the spool's watermark up to the chosen timestamp, whose cut is the initial query
there. The daemon goes on from it as from any other epoch, and so do consumers, who tell of it as they pass.

The manifest is pruned one day; ``gaps.json`` is not. It is written after the manifest, and again by whoever writes
the spool next: every gap but the newest epoch is in it.
"""

import secrets
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, SpoolError
from connector.spool.manifest import GAP_VERSION, VERSION, CutToken, Gap, Manifest, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.writing import create, sole_writer

REASON = "restarted at a chosen timestamp"
_PATH = "gaps.json"


class GapRecord(BaseModel):
    """A gap as it is kept: what was committed in (watermark_low, watermark_high] is not in the spool."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    epoch: int = Field(ge=1)
    watermark_low: Timestamp
    watermark_high: Timestamp
    reason: str
    recorded_at: Timestamp


class _Gaps(BaseModel):
    """``gaps.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    gaps: tuple[GapRecord, ...]


def restart_at(spool: Spool, moment: int, *, now: int) -> GapRecord:
    """Seals a gap from the spool's watermark to ``moment``, from where the daemon goes on.

    Args:
        spool: the spool; no daemon may write it.
        moment: nanoseconds since the epoch, inclusive.
        now: nanoseconds since the epoch.

    Raises:
        ConfigurationError: the spool has no epochs, or there is no gap up to ``moment``, or it has not come yet.
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
        text = format_rfc3339(moment)
        if moment <= newest.watermark_high + 1:
            ends = format_rfc3339(newest.watermark_high)
            close = f"is not after the spool's watermark {ends} by more than a nanosecond"
            raise ConfigurationError([f"--restart-at: {text} {close}: reading goes on from there anyway"])
        if moment > now:
            raise ConfigurationError([f"--restart-at: {text} is in the future; it is {format_rfc3339(now)}"])
        manifest = Manifest(
            version=GAP_VERSION,
            epoch=latest + 1,
            spool_id=header.spool_id,
            source=header.source,
            watermark_low=newest.watermark_high,
            watermark_high=moment - 1,
            files=(),
            tables={},
            schema_keys=newest.schema_keys,
            cut=(CutToken(token=INITIAL_TOKEN, start_timestamp=moment),),
            gap=Gap(reason=REASON, recorded_at=now),
            writer=secrets.token_hex(8),
            sealed_at=now,
        )
        create(spool, manifest)
        return remember(spool)[-1]


def remember(spool: Spool) -> tuple[GapRecord, ...]:
    """Writes the newest epoch into ``gaps.json`` if it is a gap; returns all gaps. The spool's lock is held."""
    latest = spool.latest()
    kept = _kept(spool)
    known = _with(kept, spool.manifest(latest) if latest else None)
    if known != kept:
        spool.storage.replace(_PATH, to_json(_Gaps(gaps=known)))
    return known


def gaps(spool: Spool, newest: Manifest | None) -> tuple[GapRecord, ...]:
    """All gaps that the spool has ever had, in order; ``newest`` is its newest epoch, which may be one."""
    return _with(_kept(spool), newest)


def _with(kept: Iterable[GapRecord], newest: Manifest | None) -> tuple[GapRecord, ...]:
    by_epoch = {record.epoch: record for record in kept}
    if newest is not None and newest.gap is not None:
        by_epoch[newest.epoch] = GapRecord(
            epoch=newest.epoch,
            watermark_low=newest.watermark_low,
            watermark_high=newest.watermark_high,
            reason=newest.gap.reason,
            recorded_at=newest.gap.recorded_at,
        )
    return tuple(by_epoch[epoch] for epoch in sorted(by_epoch))


def _kept(spool: Spool) -> tuple[GapRecord, ...]:
    try:
        return spool.document(_PATH, _Gaps, "it names no gaps").gaps
    except FileNotFoundError:
        return ()
