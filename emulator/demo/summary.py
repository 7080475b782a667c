"""The summary at the end of the demo: the comparison of one run, and the sum of a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from emulator.demo.skipped import Judgement
from emulator.demo.verdict import Verdict

_COUNTS = ("committed", "delivered", "skipped", "lost", "twice", "foreign", "out_of_order", "split_transactions")


def print_summary(
    verdict: Verdict, judgement: Judgement, crossed: dict[str, int], events: Path, description: str
) -> None:
    """Prints the comparison of one run.

    Args:
        verdict: how delivered events compare with committed mods.
        judgement: which missing mods the emulator skipped, and why others are lost.
        crossed: how many splits, merges and moves of partitions the reader crossed, by kind.
        events: the folder of the delivered files.
        description: what the demo ran against.
    """
    files = list(events.rglob("*.jsonl"))
    p50, p99 = ("-" if delay is None else f"{delay:.0f}" for delay in (verdict.p50_ms, verdict.p99_ms))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(crossed.items()))
    click.echo(
        f"""
  committed mods             {verdict.committed:>10}
  delivered events           {verdict.delivered:>10}
  skipped by the emulator    {verdict.skipped:>10}
  lost                       {verdict.lost:>10}
  delivered twice            {verdict.twice:>10}
  never committed            {verdict.foreign:>10}
  epochs out of order        {verdict.out_of_order:>10}
  transactions split         {verdict.split_transactions:>10}
  partitions crossed         {sum(crossed.values()):>10}   ({kinds})
  commit to event, p50       {p50:>10} ms, of commits after both ends were ready and had caught up
  commit to event, p99       {p99:>10} ms
  files                      {len(files):>10}   below {events}
  source                     {description}

{_sentence(verdict)}

Look at one of the files, or at the spool: .venv/bin/spanner-cdc spool {events.parent / "spool"}"""
    )
    for skip in judgement.skipped:
        click.echo(f"skipped by the emulator, which a bounded query returns: the commit at {skip}")
    for reason in judgement.reasons:
        click.echo(f"lost: {reason}")


def print_series(times: int, verdicts: Sequence[Verdict], failures: Sequence[str]) -> None:
    """Prints the sum of `times` runs: the verdicts of those that came to an end, and a line for each that failed."""
    good = sum(verdict.good for verdict in verdicts)
    sums = ", ".join(f"{sum(getattr(one, name) for one in verdicts)} {name.replace('_', ' ')}" for name in _COUNTS)
    with_skips = sum(verdict.skipped > 0 for verdict in verdicts)
    click.echo(f"\n{times} demos: {good} good, {with_skips} of them with a transaction skipped by the emulator; {sums}")
    for line in failures:
        click.echo(line)


def _sentence(verdict: Verdict) -> str:
    if not verdict.good:
        return "The demo FAILED: events are lost, delivered twice, never committed, out of order or split (see above)."
    if verdict.skipped:
        return "Everything that the emulator returned was delivered, once, in commit order."
    return "Everything committed was delivered, once, in commit order."
