"""The file sink's destination: a file store, where a file appears whole or not at all.

A file is started under its path relative to the root, written in order, and published, which gives it its name; until
then no reader sees it. A replay publishes the same bytes under the same path: that succeeds.
"""

from connector.spool.storage.opening import open_store
from connector.spool.storage.store import FileStore
from spark_sink.errors import SinkError


def destination_at(root: str, endpoint: str = "") -> FileStore:
    """The store that ``sink.path`` names.

    Args:
        root: a folder of the local disk, or ``gs://bucket/prefix``.
        endpoint: a Cloud Storage emulator's address, or empty.

    Raises:
        SinkError: the extra ``gcs`` is not installed.
    """
    return open_store(root, failure=SinkError, option="sink.path", endpoint=endpoint)
