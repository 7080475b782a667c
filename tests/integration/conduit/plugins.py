"""The plugin as Conduit finds it, a file in the folder of its connectors; and settings that read a scripted server."""

import sys
from pathlib import Path

from connector.conduit.handshake import COOKIE
from connector.core.timestamps import format_rfc3339
from emulator import ScriptedServer

CONDUIT = {
    COOKIE: "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f",
    "PLUGIN_PROTOCOL_VERSIONS": "2,1",
}
"""Conduit's variables in the environment."""


def plugin_at(folder: Path) -> Path:
    """Writes the file."""
    path = folder / "spanner-cdc"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m connector serve\n')
    path.chmod(0o755)
    return path


def settings_of(server: ScriptedServer) -> dict[str, str]:
    """The settings of a pipeline that reads the server's stream from its beginning."""
    scenario = server.engine.scenario
    return {
        "project": scenario.project,
        "instance": scenario.instance,
        "database": scenario.database,
        "change_stream": scenario.change_stream,
        "emulator_host": server.host,
        "start": format_rfc3339(scenario.history.origin),
    }
