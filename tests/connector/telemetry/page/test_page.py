"""The status page in a real browser: states, alarms, unknown values, a phone, and texts that look like markup."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.connector.telemetry.page.browser import CHROMIUM, opened
from tests.connector.telemetry.page.samples import ALARMS, STATES, catching_up, running, young

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_each_state_is_named_with_its_reason(state: str, tmp_path: Path) -> None:
    status = running(state) | {
        "state": {"name": state, "since": "2026-03-01T09:00:00Z", "reason": "the reason", "hint": "a hint"}
    }
    page = opened(status, tmp_path)
    assert f'data-state="{state}" data-worst="' in page.html
    assert f'">{state}</span>' in page.html
    assert "since 2026-03-01 09:00:00 UTC. the reason. a hint" in page.text
    assert page.console == []


@pytest.mark.long
def test_every_alarm_is_shown_with_what_to_do_and_its_severity_in_words(tmp_path: Path) -> None:
    page = opened(running("Running", *ALARMS), tmp_path)
    for name, (severity, message) in ALARMS.items():
        assert f'data-alarm="{name}"' in page.html
        assert (
            f"{severity.capitalize()}: {message} What to do about {name}. Since 2026-03-01 09:55:00 UTC." in page.text
        )
    assert "All alarms: docs/operations.md" in page.text
    assert "stopped: Albums column Title is INT64 now" in page.text
    assert page.html.count('class="bad"') == 2  # three dead letters, and the stopped table


@pytest.mark.long
def test_a_state_is_not_marked_as_good_while_an_error_is_an_alarm(tmp_path: Path) -> None:
    for alarm, worst in (("tables_stopped", "ERROR"), ("consumer_behind", "")):
        page = opened(running("Running", alarm), tmp_path)
        assert f'data-worst="{worst}">Running</span>' in page.html


@pytest.mark.long
def test_a_reader_at_work_is_drawn_whole(tmp_path: Path) -> None:
    page = opened(running(), tmp_path)
    for words in (
        *(
            "replication is healthy",
            "Not read yet 1.9 s complete up to 09:59:58 UTC",
            "splits 3, merges 1, moves 1",
            "fraud 112 2 min",
            "270,031",
            "incomplete in files: Albums it has dead letters",
        ),
        *("files delivers to files in gs://acme-lake/changes (jsonl)", "Data would be lost in 24.0 h"),
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


@pytest.mark.long
def test_each_table_has_its_backfill_its_changes_and_its_newest_error(tmp_path: Path) -> None:
    filled = {"state": "active", "rows": 1200, "rows_expected": 4800, "bytes": 2_000_000, "bytes_expected": 8_000_000}
    stopped = {"state": "stopped", "error": "column Title is INT64 now"}
    objects = [
        {"table": "Albums", "backfill": {"state": "not_started"}, "streaming": stopped, "errors": []},
        {"table": "Singers", "backfill": filled, "streaming": {"state": "active"}, "errors": [{"message": "a fault"}]},
    ]
    page = opened(running() | {"objects": objects}, tmp_path)
    assert "Albums not started stopped column Title is INT64 now" in page.text
    assert "Singers active 1,200 of about 4,800 2.0 MB of about 8.0 MB active a fault" in page.text
    assert page.console == []
    assert "Backfill and changes of each table" not in opened(young(), tmp_path).text


@pytest.mark.long
def test_what_is_unknown_is_called_unknown_and_never_0(tmp_path: Path) -> None:
    page = opened(young(), tmp_path)
    for name in ("Not read yet", "Changes a second", "Data would be lost in", "Spool"):
        assert f"{name} unknown" in page.text
    assert "0.0 s" not in page.text.replace("updated 0.0 s ago", "")
    assert "no partition is known yet" in page.text


@pytest.mark.long
def test_a_reader_that_catches_up_draws_the_hour_that_it_reads(tmp_path: Path) -> None:
    page = opened(catching_up(), tmp_path)
    lanes = re.findall(r'class="lane \w+" x1="([\d.]+)" x2="([\d.]+)"', page.html)
    assert len(lanes) == 8
    assert len({start for start, _ in lanes}) > 3  # and not all of them at the left edge


@pytest.mark.long
def test_names_are_whole_on_a_desktop_and_texts_keep_their_size_on_a_phone(tmp_path: Path) -> None:
    desktop = opened(running(), tmp_path, width=1440)
    assert desktop.data("cut") == ""
    phone = opened(running(), tmp_path, width=500)
    for page in (desktop, phone):
        assert float(page.data("scale")) == pytest.approx(1, abs=0.02)  # of the drawings: 12 px are 12 px


@pytest.mark.long
def test_links_work_with_a_token_and_lead_to_the_documentation_that_is_published(tmp_path: Path) -> None:
    status = running("Running", "dead_letters")
    status["build"] = {**status["build"], "documentation": "https://docs.example.com/cdc/"}
    page = opened(status, tmp_path, token="a-token")
    assert 'href="https://docs.example.com/cdc/operations.html#alarms"' in page.html
    assert opened(status, tmp_path, token="a-token", clicked="/api/status").html.count("dead_letters") > 1


@pytest.mark.long
def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    page = opened(running("Paused", *ALARMS), tmp_path, width=500)  # the least that Chromium's windows have
    assert page.data("wide") == "0"


@pytest.mark.long
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


@pytest.mark.long
def test_a_process_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    page = opened(None, tmp_path)
    assert "the process has ended, or cannot be reached" in page.text
    assert "Unknown" in page.text


@pytest.mark.long
def test_a_process_that_is_suspended_is_reported_and_since_when(tmp_path: Path) -> None:
    page = opened(running(), tmp_path, hangs=True)
    found = re.search(r"No answer for (\d+)(\.\d)? s: the process has ended", page.text)
    assert found is not None
    assert int(found[1]) >= 10  # since it was asked
    assert "updated 0.0 s ago" not in page.text
    assert "Running" in page.text
    assert page.console == []


@pytest.mark.long
def test_a_picture_can_be_taken(tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    opened(running(), tmp_path, picture=picture)
    assert picture.stat().st_size > 50_000
