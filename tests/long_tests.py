"""The tests that `make test` leaves out, because it has to be short enough for each change.

A test that is marked ``long`` costs more processor time than what it shows beside shorter ones is worth at each change;
``long(but=2)`` is a test with many cases, of which only the first two are run. ``pytest --run-long`` and ``make test
LONG=1`` run all of them, within about an hour, and pytest runs one that is named with ``::``. A test that is marked
``slow`` is a campaign, or a longer form of another test: ``pytest --run-slow`` and ``make campaigns`` run those, too.
"""

from collections import Counter
from collections.abc import Iterator

import pytest


def add_options(parser: pytest.Parser) -> None:
    """Adds the options that ask for what is left out."""
    parser.addoption("--run-long", action="store_true", help="also run tests marked long, which `make test` leaves out")
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow (campaigns), and long ones")


def skip_unless_wanted(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what is marked slow or long and was not asked for; each says how it is run."""
    if config.getoption("--run-slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="a campaign: runs with --run-slow"))
    if not config.getoption("--run-long") and not any("::" in argument for argument in config.args):
        for item in _left_out(items):
            item.add_marker(pytest.mark.skip(reason="long: runs with --run-long"))


def _left_out(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests that are marked long, but the first cases of those that keep some."""
    before: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("long"):
            test = item.nodeid.partition("[")[0]
            before[test] += 1
            if before[test] > mark.kwargs.get("but", 0):
                yield item
