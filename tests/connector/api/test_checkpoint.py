"""A checkpoint's text is read back; a damaged one, a newer one, or one of another stream is refused."""

import pytest

from connector.api.checkpoint import Checkpoint
from connector.core.timestamps import parse
from connector.errors import ConfigurationError

DONE = Checkpoint("p/i/d/s", 7, "2026-01-02T03:04:05.000000006Z/ab12")


def test_a_checkpoint_is_read_back() -> None:
    assert Checkpoint.of(DONE.to_text(), "p/i/d/s") == DONE
    assert DONE.watermark == parse("2026-01-02T03:04:05.000000006Z")
    assert str(DONE) == "epoch 7, up to 2026-01-02T03:04:05.000000006Z"


def test_the_text_is_frozen() -> None:
    assert DONE.to_text() == (
        '{"version":1,"stream":"p/i/d/s","epoch":7,"identity":"2026-01-02T03:04:05.000000006Z/ab12"}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a valid checkpoint"),
        ("[]", "not a valid checkpoint"),
        (DONE.to_text()[:-5], "not a valid checkpoint"),
        (DONE.to_text().replace("2026", "20x6"), "not a valid checkpoint"),
        (DONE.to_text().replace('"epoch":7,', ""), "not a valid checkpoint"),
        (DONE.to_text().replace('"version":1', '"version":2'), "its version 2 is newer than 1"),
        (DONE.to_text().replace("p/i/d/s", "p/i/d/other"), "it is of change stream p/i/d/other, not of p/i/d/s"),
    ],
)
def test_a_text_that_is_not_a_checkpoint_of_the_stream_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Checkpoint.of(text, "p/i/d/s")
