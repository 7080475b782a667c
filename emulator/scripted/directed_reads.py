"""Directed reads as the service checks them (https://cloud.google.com/spanner/docs/directed-reads)."""

from collections import Counter

from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToJson

from emulator.scripted.stream_query import invalid

_MOST = 10

_Request = types.ExecuteSqlRequest | types.ReadRequest


class DirectedReads:
    """Checks the directed reads of requests, and counts them.

    Attributes:
        seen: the requests by their ``directed_read_options`` as JSON in one line; empty where they have none.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, node: _Request) -> None:
        """Checks a request.

        Raises:
            ScriptedError: it is in a read-write transaction, or lists too many replicas.
        """
        if not node.HasField("directed_read_options"):
            self.seen[""] += 1
            return
        options = node.directed_read_options
        selector = node.transaction
        if selector.HasField("begin") and selector.begin.HasField("read_write"):
            raise invalid("Directed reads can only be performed in a read-only transaction.")
        listed = options.include_replicas if options.HasField("include_replicas") else options.exclude_replicas
        if not 1 <= len(listed.replica_selections) <= _MOST:
            raise invalid(f"Directed read options must have 1 to {_MOST} replica selections.")
        self.seen[MessageToJson(options, indent=None)] += 1
