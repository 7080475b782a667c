"""The errors of finding and starting an emulator; each message is one line that says what to do."""

from __future__ import annotations


class EmulatorNotFoundError(RuntimeError):
    """No emulator was found; the message says where it was searched for and how to install one."""


class EmulatorFailedError(RuntimeError):
    """An emulator was found but did not start; the message ends with the last lines that it printed."""
