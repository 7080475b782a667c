"""Warns on stderr about gaps: ranges of commit timestamps whose records are missing from the spool."""

import logging
from collections.abc import Iterable, Iterator

from connector import log
from connector.core.timestamps import format_rfc3339
from connector.spool.manifest import Manifest


def warning_of_gaps(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yields the manifests, and prints a warning for each that is a gap."""
    for manifest in manifests:
        if manifest.gap is not None:
            log.say(
                "spark_sink",
                f"epoch {manifest.epoch} is a gap: what was committed after"
                f" {format_rfc3339(manifest.watermark_low)} up to {format_rfc3339(manifest.watermark_high)}"
                f" is not in the spool ({manifest.gap.reason})",
                action="epoch_is_a_gap",
                level=logging.WARNING,
                epoch=manifest.epoch,
            )
        yield manifest
