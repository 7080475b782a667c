"""Finds or starts the official Spanner emulator, with a sample database and a workload; serves scripted Spanners."""

from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.binary import Emulator, start_binary
from emulator.official.connection import connect
from emulator.official.container import start_container
from emulator.official.launcher import find_or_start
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import Fault, FaultKind, FaultPlan
from emulator.scripted.framing import Framing
from emulator.scripted.server import ScriptedServer
from emulator.scripted.spanner import ScriptedSpanner
from emulator.scripted.stream_query import ScriptedError
from emulator.workload.journal import CommittedMod, PlannedMod, read_journal
from emulator.workload.sample import SampleDatabase
from emulator.workload.tables import TABLES, Column, Table
from emulator.workload.workload import OutcomeUnknownError, Workload, by_transaction

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
