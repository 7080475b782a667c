"""The target of a command, which is the file of a configuration or the path of a spool."""

from pathlib import Path


def is_configuration(target: str) -> bool:
    """True if a target names the file of a configuration, which may be missing; a spool is a folder or a URL."""
    return target.endswith((".yaml", ".yml")) or Path(target).is_file()
