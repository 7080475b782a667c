"""What can go wrong before an emulator answers, each with the way out in its one line."""

from __future__ import annotations


class EmulatorNotFoundError(RuntimeError):
    """There is no emulator to be had: the message is one line that says where was looked and how to get one."""


class EmulatorFailedError(RuntimeError):
    """An emulator was found and did not start: the message ends with the last lines it printed."""
