"""The status page in a real browser: states, alarms, unknown values, a phone, and texts that look like markup."""

from pathlib import Path
from typing import Any

import pytest

from tests.connector.telemetry.page.browser import CHROMIUM, opened
from tests.connector.telemetry.page.samples import ALARMS, STATES, running, young

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_named_with_its_reason(state: str, tmp_path: Path) -> None:
    status = running(state) | {
        "state": {"name": state, "since": "2026-03-01T09:00:00Z", "reason": "the reason", "hint": "a hint"}
    }
    page = opened(status, tmp_path)
    assert f'data-state="{state}">{state}</span>' in page.html
    assert "since 2026-03-01 09:00:00 UTC. the reason. a hint" in page.text
    assert page.console == []


def test_every_alarm_is_shown_with_what_to_do_and_its_severity_in_words(tmp_path: Path) -> None:
    page = opened(running("Running", *ALARMS), tmp_path)
    for name, (severity, message) in ALARMS.items():
        assert f'data-alarm="{name}"' in page.html
        assert (
            f"{severity.capitalize()}: {message} What to do about {name}. Since 2026-03-01 09:55:00 UTC." in page.text
        )


def test_a_reader_at_work_is_drawn_whole(tmp_path: Path) -> None:
    page = opened(running(), tmp_path)
    for words in (
        *("replication is healthy", "Watermark lag 1.2 s", "splits 3, merges 1, moves 1", "fraud 112 2 min", "270,031"),
        *("files delivers to files gs://acme-lake/changes",),
        *("Singers 181,234 61 MB 310", "sales.Invoices 12 4.0 kB unknown", "daemon_failed", "09:31:40 UTC yes"),
    ):
        assert words in page.text
    assert page.html.count('class="lane ') == 8
    assert page.html.count('class="edge"') == 7
    assert page.html.count('class="series"') == 2
    assert page.console == []
    assert {url.partition("127.0.0.1:")[2].partition("/")[2] for url in page.data("requests").split()} == {
        *("page.css", "page.js", "probe.js", "api/status"),
    }


def test_what_is_unknown_is_called_unknown_and_never_0(tmp_path: Path) -> None:
    page = opened(young(), tmp_path)
    for name in ("Watermark lag", "Sealed lag", "Changes a second", "Retention left", "Spool"):
        assert f"{name} unknown" in page.text
    assert "0.0 s" not in page.text.replace("updated 0.0 s ago", "")
    assert "no partition is known yet" in page.text


def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    page = opened(running("Paused", *ALARMS), tmp_path, width=500)  # the least that Chromium's windows have
    assert page.data("wide") == "0"


def test_texts_are_never_markup(tmp_path: Path) -> None:
    hostile = '<img src=x onerror="document.body.dataset.hacked=1">'
    status: dict[str, Any] = running("Running", "dead_letters")
    status["tables"][0]["table"] = status["consumers"][0]["name"] = status["health"]["summary"] = hostile
    status["errors"][0]["message"] = status["health"]["alarms"][0]["message"] = hostile
    status["partitions"]["graph"][0]["id"] = hostile
    page = opened(status, tmp_path)
    assert "<img" not in page.html
    assert "data-hacked" not in page.html
    assert page.html.count("&lt;img src=x") >= 5


def test_a_process_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    page = opened(None, tmp_path)
    assert "the process has ended, or cannot be reached" in page.text
    assert "Unknown" in page.text


def test_a_picture_can_be_taken(tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    opened(running(), tmp_path, picture=picture)
    assert picture.stat().st_size > 50_000
