"""Probes of placements: the catalog's names, and the read functions of a stream with ``per_placement_tvf``."""

from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_v1.database import Database

from spark_sink.self_test.errors import words_of
from spark_sink.self_test.probes.change_stream import Asking
from spark_sink.self_test.report import Observation, SelfTestVerdict

_PLACEMENTS = "SELECT placement_name, is_default FROM information_schema.placements"
_FUNCTIONS = "SELECT routine_name, routine_type FROM information_schema.routines"


def listed(database: Database, streams: list[str]) -> list[Observation]:
    """Observes the placements of a database, and the functions that read change streams.

    Args:
        database: the self-test's.
        streams: the whole names of its change streams.
    """
    read_by = {stream: f"_{stream.lower()}" for stream in streams}
    functions = _names(database, _FUNCTIONS)
    if isinstance(functions, list):
        functions = [one for one in functions if any(part in one.lower() for part in read_by.values())]
    return [
        _seen("the placements of INFORMATION_SCHEMA", _names(database, _PLACEMENTS)),
        _seen("the read functions of INFORMATION_SCHEMA", functions),
    ]


async def plain_function(asking: Asking, now: int) -> Observation:
    """Observes what the function without a placement's name answers, of a stream with a function for each placement."""
    answer = await asking.ask(now, now, seconds=5.0)
    return _seen("READ_ without a placement, of a stream with per_placement_tvf", f"{answer.kinds}; {answer.ended}")


def _names(database: Database, sql: str) -> list[str] | str:
    """The rows of a statement, a text each; or the words of its refusal."""
    try:
        with database.snapshot() as snapshot:
            return sorted(" ".join(map(str, row)) for row in snapshot.execute_sql(sql))
    except GoogleAPICallError as error:
        return f"refused: {words_of(error)}"


def _seen(about: str, found: list[str] | str) -> Observation:
    detail = found if isinstance(found, str) else "; ".join(found) or "none"
    return Observation(about, SelfTestVerdict.SEEN, detail)
