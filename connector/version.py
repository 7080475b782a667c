"""The version of what is installed."""

from functools import cache
from importlib import metadata


def installed_version() -> str:
    """The installed version of this program; ``unknown`` where it is not installed, as in an archive of its files."""
    try:
        return metadata.version("spanner-cdc-spark")
    except metadata.PackageNotFoundError:
        return "unknown"


@cache
def documentation() -> str:
    """The address of the published documentation; empty where the package was built without one."""
    try:
        links = metadata.metadata("spanner-cdc-spark").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    return next((link.partition(", ")[2] for link in links if link.startswith("Documentation, http")), "")
