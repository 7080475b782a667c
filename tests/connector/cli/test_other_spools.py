"""The commands over a spool, with a configuration of another change stream: each is refused, and changes nothing."""

from pathlib import Path

import pytest
import yaml

from connector.spool.backfill.records import backfills
from connector.spool.backfill.requests import stopped_tables
from connector.spool.consumers import consumers
from connector.spool.lifecycle import pause_of, request_pause
from connector.spool.reading import Spool
from tests.connector.spool.backfill.builders import SOURCE, recorded, spool_with_start
from tests.integration.commands import run


def configured(folder: Path, spool: Spool, **source: str) -> Path:
    path = folder / f"{source.get('change_stream', 'own')}.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "source": SOURCE.model_dump() | source,
                "spool": {"path": spool.path},
                "sink": {"path": str(folder / "out")},
            }
        )
    )
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("pause",),
        ("resume",),
        ("spool", "--forget", "files"),
        ("spool", "--restart-at", "2026-01-31T12:00:00Z"),
        ("backfill", "--stop", "A"),
        ("verify", "--repair"),
    ],
    ids=" ".join,
)
def test_the_spool_of_another_change_stream_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    spool, header = spool_with_start(tmp_path / "spool")
    recorded(spool, header, "A")
    if command == ("resume",):
        request_pause(spool, 1)
    paused, known = pause_of(spool), consumers(spool)
    other = configured(tmp_path, spool, change_stream="Customers")
    done = run(command[0], other, *command[1:])
    assert done.code == 2, done.err
    assert f"the spool at {spool.path} holds change stream {SOURCE}, not " in done.complaint
    assert (pause_of(spool), consumers(spool), stopped_tables(spool)) == (paused, known, frozenset())
    assert (len(backfills(spool)), spool.latest()) == (1, 0)


def test_a_configuration_of_a_spool_that_is_not_there_yet_is_taken(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path / "spool")
    done = run("pause", configured(tmp_path, spool))
    assert (done.code, "there is no spool at" in done.complaint) == (1, True)
