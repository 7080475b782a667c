"""Commands that are stopped while a thread does not end."""

import subprocess
import sys

import pytest

from connector.cli.common import INTERRUPTED

STOPPED_AUDIT = """
import asyncio, os, signal, threading
from connector.cli import proof

class Report:
    def to_json(self): return {}
    def to_text(self): return "what was compared"

async def audit(request, stop, *, planned):
    planned(Report())
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    os.kill(os.getpid(), signal.%s)
    await asyncio.Event().wait()

proof.audit, proof.audit_request = audit, lambda *_, **__: None
proof.audit_command(["spool"])
"""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_an_audit_that_is_stopped_while_a_thread_hangs_prints_its_report_and_does_not_say_that_all_is_well(
    signal: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AUDIT % signal], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (INTERRUPTED, "what was compared\n"), done.stderr
