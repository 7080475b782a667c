"""Compares what was committed with the events found in the delivered files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from emulator.demo.plain_stream import Identity, committed_identity, identity
from emulator.demo.skipped import Judgement
from emulator.workload.journal import CommittedMod


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event as it was found in a file.

    `order` is its place in commit order, `epoch` the epoch of its file, `visible` when the file was written, in
    nanoseconds since 1970.
    """

    identity: Identity
    uuid: str
    order: tuple[int, str, int, int]
    transaction: str
    epoch: int
    visible: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing the delivered events with the committed mods.

    Mods that the emulator skipped (see emulator.demo.skipped) do not count as `lost`. `foreign` events were never
    committed; `out_of_order` counts epochs that start before the end of the epoch before them. The delays are
    milliseconds from commit to event, None if none was measured.
    """

    committed: int
    delivered: int
    skipped: int
    lost: int
    twice: int
    foreign: int
    out_of_order: int
    split_transactions: int
    p50_ms: float | None
    p99_ms: float | None

    @property
    def good(self) -> bool:
        """True if everything that the server returned was delivered, once, in order."""
        return self.committed == self.delivered + self.skipped and not (
            self.lost or self.twice or self.foreign or self.out_of_order or self.split_transactions
        )


def delivered_events(root: Path) -> Iterator[Delivered]:
    """Yields the events of every file below `root`."""
    for path in root.rglob("*.jsonl"):
        visible = path.stat().st_mtime_ns
        epoch = int(path.stem.split("_")[-2])
        for line in path.read_bytes().splitlines():
            event = json.loads(line)
            metadata = event["source_metadata"]
            keys = {name: event["payload"][name] for name in metadata["primary_keys"]}
            _, at, sequence, index = event["sort_keys"]
            yield Delivered(
                identity=identity(at, event["object"], metadata["mod_type"], keys),
                uuid=event["uuid"],
                order=(at, metadata["server_transaction_id"], int(sequence), index),
                transaction=metadata["server_transaction_id"],
                epoch=epoch,
                visible=visible,
            )


def compare(
    committed: list[CommittedMod], events: list[Delivered], *, ready: int, judgement: Judgement | None = None
) -> Verdict:
    """Compares the delivered events with what was committed.

    Args:
        committed: all committed mods.
        events: all delivered events.
        ready: when both ends had started, in nanoseconds since 1970. Delays are measured for commits after that, and
            after everything committed before it was delivered.
        judgement: which missing mods the emulator skipped; without it every missing mod is lost.
    """
    since = max([ready, *(event.visible for event in events if event.identity[0] < ready)])
    wanted = Counter(committed_identity(mod) for mod in committed)
    found = Counter(event.identity for event in events)
    epochs = Counter(transaction for transaction, _ in {(event.transaction, event.epoch) for event in events})
    out_of_order = 0
    before = (0, "", 0, 0)
    by_epoch = attrgetter("epoch")
    for _, group in groupby(sorted(events, key=by_epoch), key=by_epoch):
        orders = [event.order for event in group]
        out_of_order += min(orders) <= before
        before = max(orders)
    delays = sorted((event.visible - event.identity[0]) / 1e6 for event in events if event.identity[0] >= since)
    skipped = judgement.skipped_mods if judgement else 0
    return Verdict(
        committed=wanted.total(),
        delivered=len(events),
        skipped=skipped,
        lost=(wanted - found).total() - skipped,
        twice=len(events) - len({event.uuid for event in events}),
        foreign=(found - wanted).total(),
        out_of_order=out_of_order,
        split_transactions=sum(count > 1 for count in epochs.values()),
        p50_ms=delays[len(delays) // 2] if delays else None,
        p99_ms=delays[min(len(delays) * 99 // 100, len(delays) - 1)] if delays else None,
    )
