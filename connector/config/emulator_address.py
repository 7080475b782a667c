"""The address of an emulator of Spanner, and the options that name it."""

from connector.config.address import is_host_and_port
from connector.process import EMULATOR_HOST


def emulator_options(section: str) -> str:
    """The options that can name an emulator, as text; a section of the configuration has one of them."""
    return f"{EMULATOR_HOST}, --emulator-host or {section}.emulator_host"


def emulator_problem(host: str, section: str) -> str:
    """The reason why an emulator's address cannot be one; empty if it can."""
    if is_host_and_port(host):
        return ""
    return f"{emulator_options(section)}: {host!r} is not the address of an emulator: write HOST:PORT"
