"""Reads a change stream in windows, with :func:`read_share` for every share."""

from collections.abc import Iterator
from dataclasses import replace

from connector.core.changes import Changes
from connector.core.epoch import incomplete_transactions, minute_end
from connector.core.masking.rules import ColumnRules
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from connector.core.windows import Share, ShareReport, Window, closed, deal
from connector.spanner.partition_query import StreamAddress
from emulator import ScriptedServer
from spark_sink.reading.windows.task import WindowSetup, read_share
from tests.connector.builders import address_of
from tests.property.windows.sharing import merged


def setup_of(server: ScriptedServer, spool: str = "spool", *, rules: ColumnRules | None = None) -> WindowSetup:
    """The setup for a scripted server, as it travels to a task."""
    scenario = server.engine.scenario
    names = (scenario.dialect, scenario.change_stream, scenario.mode)
    stream = StreamAddress(replace(address_of(server.database, server.host), columns=rules), "high", *names, SECOND)
    setup = WindowSetup(stream, spool, "dead-letter" if rules else "stop")
    return WindowSetup.from_json(setup.to_json())


def read_whole(setup: WindowSetup, window: Window, share: Share) -> tuple[Changes, ShareReport]:
    """All that a share's task returns."""
    *parts, report = read_share(setup, Window.from_json(window.to_json()), Share.from_json(share.to_json()))
    assert isinstance(report, ShareReport)
    changes = Changes.joined(part for part in parts if isinstance(part, Changes))
    assert report.records == len(changes)
    assert report.mods == changes.mods
    return changes, ShareReport.from_json(report.to_json())


def windows(
    setup: WindowSetup, start: int, end: int, *, length: int, most: int
) -> Iterator[tuple[Changes, list[ShareReport]]]:
    """The records of each window from ``start`` to ``end``, in commit order, and the reports of its shares."""
    low = start - 1
    cut: tuple[CutPartition, ...] = (CutPartition(INITIAL_TOKEN, start),)
    number = 0
    while low < end:
        number += 1
        window = Window(number, low, min(low + length, minute_end(low + 1), end))
        shares = deal(cut, {at.token: 10**8 for at in cut}, most=most)
        read, reports = zip(*(read_whole(setup, window, share) for share in shares), strict=True)
        result = closed(window, reports)
        assert not result.orphans
        changes = merged(
            list(read), [share.number for share in shares], mutable=setup.stream.partition_mode == "MUTABLE_KEY_RANGE"
        )
        assert not incomplete_transactions(changes)
        yield changes, list(reports)
        low, cut = window.high, result.cut
