"""Fixtures: one emulator for these tests, and a new sample database for each."""

from tests.integration.servers import database, emulator

__all__ = ["database", "emulator"]
