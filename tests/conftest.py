"""Campaigns, marked slow, run only where they are asked for: `pytest --run-slow`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run what is marked slow: campaigns")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="a campaign: run it with --run-slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
