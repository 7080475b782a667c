"""Runs audits of spools against a scripted server."""

import asyncio
from dataclasses import replace
from pathlib import Path

from connector.core.timestamps import SECOND
from connector.proof.audit.command import AuditReport, audit, audit_request
from connector.reader.stopping import StopRequest
from emulator import ScriptedServer


def audited(target: Path | str, server: ScriptedServer, *, stopped: bool = False, **options: str | None) -> AuditReport:
    """The report of an audit that has run to its end, or was stopped before it read anything."""
    reports: list[AuditReport] = []
    given = {"start": None, "end": None, "sample": None, "rpc_priority": "low", **options}
    request = audit_request(str(target), **given)  # type: ignore[arg-type]
    stop = StopRequest(drain_timeout=60 * SECOND)
    if stopped:
        stop.request()
    request = replace(request, source=request.source.model_copy(update={"emulator_host": server.host}))
    work = audit(request, stop, planned=reports.append)
    asyncio.run(work)
    (report,) = reports
    return report
