"""Fixtures: one official emulator for all, a fresh sample database for each test."""

from tests.integration.servers import database, emulator

__all__ = ["database", "emulator"]
