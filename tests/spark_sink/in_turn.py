"""Campaigns over several databases in turn: an emulator becomes slow with what its change streams have captured."""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from emulator import find_or_start
from tests.java import java_options
from tests.spark_sink.reading.backfill.campaign.campaign import report


def options(prog: str, *, mods: int) -> argparse.ArgumentParser:
    """The options that such campaigns have in common; `mods` is the default."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--mods", type=int, default=mods)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--capture", default="NEW_ROW", help="the value capture type of the change stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--databases", type=int, default=5, help="one after the other; each has its part of mods and kills"
    )
    return parser


def in_turn(given: argparse.Namespace, about: str, one: Callable[[str, Path, int], str]) -> int:
    """Runs a campaign in one database after the other, until one is wrong; returns the exit code.

    Args:
        given: the options.
        about: what sets this campaign apart from others.
        one: runs a part of it, with the emulator's host, an empty folder and a seed; returns what is wrong, or an
            empty text.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    about = f"{about}, {given.dialect}, {given.capture}, seed {given.seed}"
    report(f"{given.mods} mods, {given.kills} kills, {given.databases} databases, {about}: {folder}")
    with find_or_start(churn_seconds=10) as emulator:
        for number in range(given.databases):
            part = folder / str(number)
            part.mkdir()
            if wrong := one(emulator.host, part, given.seed + 10 * number):
                report(f"{about}: database {number}: {wrong}; {folder}")
                return 1
    report(f"{about}: nothing is missing, nothing differs, nothing is there twice; {folder}")
    return 0
