"""Asks Spanner to split tables (https://cloud.google.com/spanner/docs/create-manage-split-points).

No page says that a split shows in a change stream: whether it does is observed, and whatever it does, every mod must be
read once and in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_admin_database_v1 import DatabaseAdminClient

from connector.core.timestamps import SECOND
from spark_sink.self_test.errors import words_of
from spark_sink.self_test.report import Observation

_KEPT = 120
"""Seconds until Spanner may merge the splits again. Its own default is ten days."""

_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class AskedSplits:
    """The answer to a request for splits; ``at`` is Spanner's clock before it, Unix nanoseconds."""

    at: int
    is_accepted: bool
    answer: str

    def observation(self) -> Observation:
        """The answer, word for word."""
        observation = Observation.seen if self.is_accepted else Observation.not_probed
        return observation("splits that are asked for by AddSplitPoints", self.answer)


def ask_for_splits(
    api: DatabaseAdminClient, database: str, points: Sequence[tuple[str, Sequence[Sequence[str]]]], at: int
) -> AskedSplits:
    """Asks for splits of tables at keys.

    Args:
        api: the client.
        database: its resource name.
        points: tables, each with keys, whose parts are as in Spanner's JSON.
        at: Spanner's clock, Unix nanoseconds.
    """
    if not hasattr(api, "add_split_points"):
        return AskedSplits(at, is_accepted=False, answer="the installed google-cloud-spanner does not know the call")
    expires = datetime.fromtimestamp(at // SECOND + _KEPT, UTC)
    split_points = [
        {"table": table, "keys": [{"key_parts": list(key)} for key in keys], "expire_time": expires}
        for table, keys in points
    ]
    try:
        api.add_split_points(request={"database": database, "split_points": split_points}, retry=None, timeout=_TIMEOUT)
    except GoogleAPICallError as error:
        return AskedSplits(at, is_accepted=False, answer=f"refused: {words_of(error)}")
    return AskedSplits(at, is_accepted=True, answer=f"accepted: {sum(len(keys) for _, keys in points)} keys")
