"""The report of ``spool``, as data and as text."""

import time
from collections.abc import Collection, Iterable

from connector.core.timestamps import SECOND, format_lag, format_rfc3339
from connector.daemon.backfill_report import Report, described, healed, incompleteness, lacking, lines_of
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.backfill.equal_tables import equal_tables
from connector.spool.backfill.excluded_tables import excluded_ranges
from connector.spool.backfill.records import backfills, healing
from connector.spool.consumers import Consumer
from connector.spool.gaps import gaps
from connector.spool.late_store import late_report
from connector.spool.reading import Spool, while_pruned
from connector.spool.summaries import EpochSummary, held_bytes

_SHOWN_EPOCHS = 20


def spool_report(spool: Spool) -> Report:
    """Describes a spool.

    Raises:
        SpoolError: it does not exist, or a file of it is corrupt.
    """
    return while_pruned(spool, lambda: _spool_report(spool))


def _spool_report(spool: Spool) -> Report:
    try:
        header = spool.header()
    except FileNotFoundError as error:
        raise SpoolError(f"there is no spool at {spool.path}", hint="`spanner-cdc read CONFIG` creates one.") from error
    known = consumers.consumers(spool)  # before the newest epoch, which one may be done with as soon as it is sealed
    floor, latest = spool.floor(), spool.latest()
    epochs = list(spool.summaries(floor, latest))
    watermark = epochs[-1].watermark_high if epochs else header.start - 1
    newest = next(spool.manifests(latest, latest)) if latest else None
    identities = {epoch.epoch: epoch.identity for epoch in epochs}
    behind = _rows_after({consumer.epoch for consumer in known}, epochs)
    filled = backfills(spool)
    equal = {consumer.consumer: equal_tables(spool, consumer.consumer) for consumer in known}
    watched = newest.schema_keys if newest else header.schema_keys
    return {
        "path": spool.path,
        "spool_id": header.spool_id,
        "source": header.source.model_dump(),
        **({} if header.placements is None else {"placements": list(header.placements) or "all"}),
        "start": format_rfc3339(header.start),
        "watermark": format_rfc3339(watermark),
        "lag_s": round((time.time_ns() - watermark) / SECOND, 3),
        "first_epoch": floor,
        "last_epoch": latest,
        "rows": sum(epoch.rows for epoch in epochs),
        "bytes": held_bytes(epochs),
        "late_records": _late_records(spool),
        **_excluded(spool, watched),
        "gaps": [
            {
                **gap.model_dump(mode="json"),
                "healed": list(healing(filled, gap.watermark_high, watched)),
                "repaired": {
                    name: found
                    for name, tables in equal.items()
                    if (found := sorted(table for table, at in tables.items() if at > gap.watermark_high))
                },
            }
            for gap in gaps(spool, newest)
        ],
        "backfills": [described(one) for one in filled],
        "consumers": [
            {
                "consumer": consumer.consumer,
                "epoch": consumer.epoch,
                "behind_epochs": latest - consumer.epoch,
                "behind_rows": behind[consumer.epoch],
                "updated": format_rfc3339(consumer.updated),
                **_stray(consumer, latest, identities.get(consumer.epoch, "")),
                **incompleteness(spool, consumer.consumer),
            }
            for consumer in known
        ],
        "epochs": [
            {
                "epoch": epoch.epoch,
                "watermark_low": format_rfc3339(epoch.watermark_low),
                "watermark_high": format_rfc3339(epoch.watermark_high),
                "rows": epoch.rows,
                "bytes": epoch.held,
                "tables": epoch.tables,
            }
            for epoch in epochs
        ],
    }


def _excluded(spool: Spool, tables: Iterable[str]) -> Report:
    """The ranges that tables lack because ``source.tables`` excluded them for a while; nothing if there are none."""
    ranges = excluded_ranges(spool)
    found = [
        {"table": table, "after": format_rfc3339(one.after), "up_to": format_rfc3339(one.up_to)}
        for table in sorted(tables)
        for one in ranges
        if one.lacks(table)
    ]
    return {"excluded": found} if found else {}


def _stray(consumer: Consumer, latest: int, identity: str) -> Report:
    return {"of_another_copy": True} if consumers.is_stray(consumer, latest, identity) else {}


def _late_records(spool: Spool) -> Report:
    late = late_report(spool)
    if not late.count:
        return {"count": 0, "first": None, "last": None}
    return {"count": late.count, "first": format_rfc3339(late.first), "last": format_rfc3339(late.last)}


def _rows_after(points: Collection[int], epochs: Iterable[EpochSummary]) -> dict[int, int]:
    """The number of rows after each of some epochs."""
    rows = dict.fromkeys(points, 0)
    for epoch in epochs:
        for point in points:
            rows[point] += epoch.rows if epoch.epoch > point else 0
    return rows


def spool_text(report: Report) -> str:
    """The description of a spool, as text: totals, late records, gaps, consumers, and the newest epochs."""
    lag = format_lag(round(report["lag_s"] * SECOND))
    total = (
        f"{report['path']}: epochs {report['first_epoch']} to {report['last_epoch']}, {report['rows']} rows,"
        f" {report['bytes']} bytes, watermark {report['watermark']} ({lag} behind)"
    )
    lines = [total]
    if isinstance(placements := report.get("placements"), list):
        lines.append(f"  placements: {', '.join(placements)}")
    late = report["late_records"]
    if late["count"]:
        lines.append(
            f"  LATE: {late['count']} documents of late records or incomplete transactions are in late/,"
            f" committed from {late['first']} to {late['last']}"
        )
    lines += [
        f"  GAP, epoch {gap['epoch']}: ({gap['watermark_low']}, {gap['watermark_high']}] is missing:"
        f" {gap['reason']}, recorded {gap['recorded_at']}{healed(gap)}"
        for gap in report["gaps"]
    ]
    lines += [
        f"  EXCLUDED, table {one['table']}: ({one['after']}, {one['up_to']}] is missing,"
        " because source.tables excluded it"
        for one in report.get("excluded", [])
    ]
    lines += [line for one in report["backfills"] for line in lines_of(one)]
    lines += [
        f"  consumer {consumer['consumer']}: done with epoch {consumer['epoch']}{_behind(consumer)},"
        f" since {consumer['updated']}{lacking(consumer)}"
        for consumer in report["consumers"]
    ] or ["  no consumer is registered: nothing is pruned"]
    lines += [
        f"  epoch {epoch['epoch']}: ({epoch['watermark_low']}, {epoch['watermark_high']}]"
        f" {epoch['rows']} rows, {epoch['bytes']} bytes"
        for epoch in report["epochs"][-_SHOWN_EPOCHS:]
    ]
    return "\n".join(lines)


def _behind(consumer: Report) -> str:
    if consumer.get("of_another_copy"):
        return " of another copy of this spool"
    return f", {consumer['behind_epochs']} epochs and {consumer['behind_rows']} rows behind"
