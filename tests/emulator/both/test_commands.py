"""The commands return exactly what was committed, on both servers."""

import json
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339
from tests.emulator.subjects import Subject
from tests.integration.commands import configuration, options, run, tail
from tests.integration.contract import assert_in_commit_order, assert_valid
from tests.integration.delivered import assert_delivered, differences, in_unified_types, of_events

Pair = tuple[Subject, Subject]


@pytest.mark.long(but=2)
def test_tail_prints_exactly_what_was_committed(subject: Subject) -> None:
    bounds = [format_rfc3339(subject.committed[place].commit_timestamp_ns) for place in (0, -1)]
    done = tail(subject.sample, "--start", bounds[0], "--end", bounds[1])
    assert done.code == 0, done.err
    for event in done.events:
        assert_valid(event, subject.sample)
    assert_in_commit_order(done.events)
    committed = in_unified_types(subject.committed, subject.sample, "NEW_ROW")
    delivered = of_events(done.events)
    assert delivered == committed, differences(committed, delivered)


@pytest.mark.long(but=1)
def test_read_fills_a_spool_with_exactly_what_was_committed_and_check_accepts_it(
    subject: Subject, tmp_path: Path
) -> None:
    bounds = {"start": format_rfc3339(subject.start), "end": format_rfc3339(subject.end)}
    config = configuration(tmp_path, subject.sample, source=bounds)
    assert run("check", config).code == 0
    done = run("read", config)
    assert done.code == 0, done.err
    assert_delivered(tmp_path / "spool", subject.committed)


@pytest.mark.emulator
def test_discover_prints_the_same_on_both_servers(pair: Pair) -> None:
    official, scripted = (run("discover", *options(subject.sample), "--json") for subject in pair)
    assert official.code == scripted.code == 0
    assert official.out == scripted.out
    (stream,) = json.loads(official.out)
    assert stream["partition_mode"] == "IMMUTABLE_KEY_RANGE"
