"""Fixtures: an emulator, and a new sample database for each test."""

from tests.integration.servers import database, emulator

__all__ = ["database", "emulator"]
