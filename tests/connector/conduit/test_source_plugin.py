"""What Conduit's users read, and how large the messages are that Conduit gets."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from connector.conduit.serving import serve
from connector.conduit.source_plugin import SourcePlugin, _parts
from connector.core.position import Position
from connector.errors import BeforeStreamError, ConfigurationError


def rows(*sizes: int) -> pa.RecordBatch:
    texts = ["x" * size for size in sizes]
    return pa.RecordBatch.from_pydict(
        {"payload": pa.array(texts, pa.string()), "before": pa.array([None] * len(texts), pa.string())}
    )


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1] * 2500, [1000, 1000, 500]),
        ([3_000_000, 1_000_000, 1_000_000, 9_000_000, 1], [2, 1, 1, 1]),
    ],
)
def test_a_message_has_at_most_a_thousand_records_and_four_megabytes(sizes: list[int], expected: list[int]) -> None:
    assert [part.num_rows for part in _parts(rows(*sizes))] == expected


def test_a_position_from_before_the_change_stream_says_what_helps() -> None:
    """The setting `start` does not, for the position counts."""
    plugin = SourcePlugin(None)
    error = BeforeStreamError(["source.start: 2026-03-01T10:00:00Z is within the retention period, but did not exist"])
    assert plugin._line(error).startswith("start: ")
    plugin._after = Position("p/i/d/s", 1, "t", "00000000", 0)
    assert "Delete the pipeline and create it again with a later start" in plugin._line(error)
    assert "nothing was skipped" in plugin._line(error)
    assert "source." not in plugin._line(error)


def test_a_folder_that_is_too_long_for_a_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("PLUGIN_UNIX_SOCKET_DIR", str(folder))
    with pytest.raises(ConfigurationError, match=r"PLUGIN_UNIX_SOCKET_DIR: .*longlong.* is too long for the name of"):
        asyncio.run(serve(emulator_host=None))
