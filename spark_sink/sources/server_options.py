"""The options of a Spark source that say which Spanner a database is in, and how it is reached."""

from collections.abc import Mapping

SERVER_OPTIONS = ("emulatorHost", "edition", "endpoint", "tls", "tlsCa", "tlsCertificate", "tlsKey", "tokenFile")
_FILES = {"tlsca": "ca", "tlscertificate": "certificate", "tlskey": "key"}
_NAMES = {"emulatorhost": "emulator_host", "edition": "edition", "endpoint": "endpoint", "tokenfile": "token_file"}


def is_omni(given: Mapping[str, str]) -> bool:
    """True if the options name a server of Spanner Omni, whose project and instance have no other names."""
    return given.get("edition", "").lower() == "omni"


def server_of(given: Mapping[str, str]) -> dict[str, object]:
    """The options of the section ``source``; ``given`` has small letters in its names."""
    found: dict[str, object] = {_NAMES[name]: value for name, value in given.items() if name in _NAMES and value}
    if "edition" in found:
        found["edition"] = str(found["edition"]).lower()
    files = {_FILES[name]: value for name, value in given.items() if name in _FILES and value}
    if files or given.get("tls"):
        found["tls"] = files or given["tls"]
    return found
