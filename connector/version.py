"""The version of what is installed."""

from importlib import metadata


def installed_version() -> str:
    """The installed version of this program; ``unknown`` where it is not installed, as in an archive of its files."""
    try:
        return metadata.version("spanner-cdc-spark")
    except metadata.PackageNotFoundError:
        return "unknown"
