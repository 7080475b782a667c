"""Opens the file store that a path names: a folder of the local disk, or ``gs://bucket/prefix``."""

from connector.errors import SpannerCdcError
from connector.spool.storage.local import LocalStore
from connector.spool.storage.locations import in_cloud_storage, with_extra_gcs
from connector.spool.storage.store import FileStore


def open_store(
    path: str,
    *,
    failure: type[SpannerCdcError],
    unavailable: type[SpannerCdcError] | None = None,
    option: str,
    endpoint: str = "",
) -> FileStore:
    """Opens a file store; nothing is read or made before its first use.

    Args:
        path: a folder, absolute or relative to the working folder, or ``gs://bucket/prefix``.
        failure: the error that the store raises.
        unavailable: the one that it raises after transient errors have lasted too long; None for ``failure``.
        option: the option that chose ``path``, for hints.
        endpoint: a Cloud Storage emulator's address; empty for the environment's, if any.

    Raises:
        SpannerCdcError: ``failure``: the path is not valid, or the extra ``gcs`` is not installed.
    """
    if not in_cloud_storage(path):
        return LocalStore(path, failure=failure, option=option)
    with with_extra_gcs(failure):
        from connector.spool.storage.gcs import GcsStore
    return GcsStore(path, failure=failure, unavailable=unavailable, option=option, endpoint=endpoint)
