"""A short form of ``python -m tests.breakages``, with shorter times until an alarm, and the page that it makes."""

import sys
from pathlib import Path

import pytest

from tests.breakages import breakage, service
from tests.breakages.__main__ import BREAKAGES, drawn, exercise
from tests.breakages.page import PAGE, cells, rows_of, sections_of, stable

SHORT = [one for one in BREAKAGES if one.short]


def test_what_breaks_is_named_everywhere_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "COMMAND", (sys.executable, "-m", "tests.breakages.hurried"))
    monkeypatch.setattr(breakage, "LIMIT", 300.0)  # the page is of a machine that does nothing else
    page = rows_of(PAGE.read_text())
    for one in exercise(SHORT, at_a_time=3):
        assert one.faults() == [], f"{one.breakage.name}: {one.seen}"
        assert cells(one)[1:] == page[one.breakage.name][1:]


def test_the_page_has_each_breakage_and_no_cell_says_that_all_is_well() -> None:
    text = PAGE.read_text()
    assert list(rows_of(text)) == [one.name for one in BREAKAGES]
    assert "healthy" not in text.lower()
    assert "no answer: the process has ended" in text
    for name, (within, alarm, status, ready, _) in rows_of(text).items():
        assert within in ("10 s", "30 s", "60 s"), name
        assert alarm, name
        warns = alarm in ("`consumer_behind`", "`second_daemon`")
        assert warns or (status, ready) != ("0", "200"), name


def test_the_section_of_each_breakage_has_what_is_done_and_names_the_cause_where_people_look() -> None:
    sections = sections_of(PAGE.read_text())
    for one in BREAKAGES:
        lines = sections[one.name].splitlines()
        assert one.done in lines
        says = stable(one.says, Path("/no-folder"))
        seen = {what: line for line in lines for what in ("page", "`status`", "log") if line.startswith(f"| {what} |")}
        assert says in seen["`status`"], one.name
        assert says in seen["log" if "no answer" in seen["page"] else "page"], one.name


def test_a_draw_is_the_same_for_a_seed_and_has_no_breakage_twice() -> None:
    ten = [one.name for one in drawn(BREAKAGES, 10, 7)]
    assert ten == [one.name for one in drawn(BREAKAGES, 10, 7)]
    assert len(set(ten)) == 10
    assert ten != [one.name for one in drawn(BREAKAGES, 10, 8)]
    assert len(drawn(BREAKAGES, 1000, 7)) == len(BREAKAGES)
