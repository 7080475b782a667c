"""Probes of placements: the catalog's names, and the read functions of a stream with ``per_placement_tvf``."""

from datetime import UTC, datetime, timedelta

from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_v1.database import Database

from connector.core.timestamps import SECOND
from spark_sink.self_test.errors import words_of
from spark_sink.self_test.probes.change_stream import Asking
from spark_sink.self_test.report import Observation, SelfTestVerdict

_PLACEMENTS = "SELECT placement_name, is_default FROM information_schema.placements"
_FUNCTIONS = "SELECT routine_name, routine_type FROM information_schema.routines"
_EARLIER = timedelta(seconds=3)


def listed(database: Database, streams: list[str], now: int) -> list[Observation]:
    """Observes the placements of a database, and the functions that read change streams, now and some seconds ago.

    A reader that was down looks at the lists of meanwhile, so that it notices a placement that came and went.

    Args:
        database: the self-test's.
        streams: the whole names of its change streams.
        now: Spanner's clock, Unix nanoseconds.
    """
    earlier = datetime.fromtimestamp(now // SECOND, UTC) - _EARLIER

    def functions(at: datetime | None) -> list[str] | str:
        found = _names(database, _FUNCTIONS, at)
        if isinstance(found, str):
            return found
        return [one for one in found if any(f"_{stream.lower()}" in one.lower() for stream in streams)]

    return [
        _seen("the placements of INFORMATION_SCHEMA", _names(database, _PLACEMENTS)),
        _seen("the read functions of INFORMATION_SCHEMA", functions(None)),
        _seen("the read functions of INFORMATION_SCHEMA as of some seconds ago", functions(earlier)),
    ]


async def plain_function(asking: Asking, now: int) -> Observation:
    """Observes what the function without a placement's name answers, of a stream with a function for each placement."""
    answer = await asking.ask(now, now, seconds=5.0)
    return _seen("READ_ without a placement, of a stream with per_placement_tvf", f"{answer.kinds}; {answer.ended}")


def _names(database: Database, sql: str, at: datetime | None = None) -> list[str] | str:
    """The rows of a statement, a text each; or the words of its refusal."""
    try:
        with database.snapshot(read_timestamp=at) as snapshot:
            return sorted(" ".join(map(str, row)) for row in snapshot.execute_sql(sql))
    except GoogleAPICallError as error:
        return f"refused: {words_of(error)}"


def _seen(about: str, found: list[str] | str) -> Observation:
    detail = found if isinstance(found, str) else "; ".join(found) or "none"
    return Observation(about, SelfTestVerdict.SEEN, detail)
