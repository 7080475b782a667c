"""Measures a daemon's restart over a spool that no sink has consumed: ``python -m benchmarks.restart``.

Arguments: EPOCHS and PARTITIONS, by default 100,000 and 5,000. The manifests are written as a daemon would have sealed
them, but without waiting for the disk.
"""

import sys
import tempfile
import time
from pathlib import Path

from connector.cli.spool_reports import spool_report
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.spool.manifest import Manifest, SourceName
from connector.spool.reading import Spool, manifest_path
from connector.spool.writing import SpoolWriter, checkpoint, initialize

START = 1_790_000_000 * SECOND
NAME = SourceName(project="p", instance="i", database="d", change_stream="S")
CHURN = 2
"""Partitions that start and end in an epoch."""


def main(epochs: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="restart-") as folder:
        seconds = sealed(folder, partitions, 200)
        print(f"a seal with {partitions} partitions takes {seconds * 1e3:.1f} ms")
        manifest = Spool.at(folder).manifest(200)
        for epoch in range(201, epochs + 1):
            Path(folder, manifest_path(epoch)).write_bytes(following(manifest, epoch).to_json())
        for name in ("of a program without summaries", "with summaries"):
            started = time.perf_counter()
            writer = opened(folder)
            ready = time.perf_counter() - started
            writer.seal(epoch_of(writer.epoch + 1), cut_of(partitions, 0), now=START)
            seal = time.perf_counter() - started - ready
            print(f"{writer.epoch - 1} epochs {name}: ready in {ready:.2f} s, first seal in {seal:.2f} s")
        started = time.perf_counter()
        kept = spool_report(Spool.at(folder))["bytes"]
        print(f"the report takes {time.perf_counter() - started:.2f} s; counted are {kept} bytes")


def opened(folder: str) -> SpoolWriter:
    spool = Spool.at(folder)
    header = spool.check_source(NAME)
    envelope = EnvelopeBuilder(Source("p", "i", "d", "S", "d"), stream_name=None, read_method="spanner-cdc")
    return SpoolWriter(spool, header, checkpoint(spool, header), envelope, lambda changes: changes)


def sealed(folder: str, partitions: int, epochs: int) -> float:
    """Seals epochs; returns the seconds that one took."""
    initialize(Spool.at(folder), NAME, START, "now", [])
    writer = opened(folder)
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        cut = cut_of(partitions, epoch * CHURN)
        started = time.perf_counter()
        writer.seal(epoch_of(epoch), cut, now=START)
        seconds += time.perf_counter() - started
    return seconds / epochs


def cut_of(partitions: int, gone: int) -> list[CutPartition]:
    return [CutPartition(f"{number:0160d}", START) for number in range(gone, gone + partitions)]


def epoch_of(number: int) -> SealedEpoch:
    return SealedEpoch(START - 1 + (number - 1) * SECOND, START - 1 + number * SECOND, (), 0)


def following(manifest: Manifest, epoch: int) -> Manifest:
    one = epoch_of(epoch)
    return manifest.model_copy(update={"epoch": epoch, "watermark_low": one.low, "watermark_high": one.high})


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given or [100_000, 5_000]))
