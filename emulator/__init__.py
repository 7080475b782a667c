"""Finds or starts the official Spanner emulator, with a sample database and a workload; serves scripted Spanners."""

from emulator.binary import Emulator, start_binary
from emulator.connection import connect
from emulator.container import start_container
from emulator.fault_plan import Fault, FaultKind, FaultPlan
from emulator.faults import EmulatorFailedError, EmulatorNotFoundError
from emulator.framing import Framing
from emulator.journal import CommittedMod, PlannedMod, read_journal
from emulator.launcher import find_or_start
from emulator.sample import SampleDatabase
from emulator.scenario import Scenario
from emulator.scripted import ScriptedSpanner
from emulator.scripted_clock import ScriptedClock
from emulator.scripted_server import ScriptedServer
from emulator.stream_query import ScriptedError
from emulator.tables import TABLES, Column, Table
from emulator.workload import OutcomeUnknownError, Workload, by_transaction

__all__ = [
    "TABLES",
    "Column",
    "CommittedMod",
    "Emulator",
    "EmulatorFailedError",
    "EmulatorNotFoundError",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "Framing",
    "OutcomeUnknownError",
    "PlannedMod",
    "SampleDatabase",
    "Scenario",
    "ScriptedClock",
    "ScriptedError",
    "ScriptedServer",
    "ScriptedSpanner",
    "Table",
    "Workload",
    "by_transaction",
    "connect",
    "find_or_start",
    "read_journal",
    "start_binary",
    "start_container",
]
