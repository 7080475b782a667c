"""Finds or starts the official Spanner emulator, and gives it a sample database and a workload that can be checked."""

from emulator.binary import Emulator, start_binary
from emulator.connection import connect
from emulator.container import start_container
from emulator.faults import EmulatorFailedError, EmulatorNotFoundError
from emulator.journal import CommittedMod, PlannedMod, read_journal
from emulator.launcher import find_or_start
from emulator.sample import SampleDatabase
from emulator.tables import TABLES, Column, Table
from emulator.workload import OutcomeUnknownError, Workload, by_transaction

__all__ = [
    "TABLES",
    "Column",
    "CommittedMod",
    "Emulator",
    "EmulatorFailedError",
    "EmulatorNotFoundError",
    "OutcomeUnknownError",
    "PlannedMod",
    "SampleDatabase",
    "Table",
    "Workload",
    "by_transaction",
    "connect",
    "find_or_start",
    "read_journal",
    "start_binary",
    "start_container",
]
