"""Probes of placements: the catalog's names, and the read functions of a stream with ``per_placement_tvf``."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_v1.database import Database

from connector.core.records import INITIAL_TOKEN, partition_id
from connector.core.timestamps import SECOND
from connector.errors import SpannerCdcError
from connector.reader.placements.listing import lister_of
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import find_change_stream
from spark_sink.self_test.errors import words_of
from spark_sink.self_test.probes.change_stream import Asking, ProbeAnswer
from spark_sink.self_test.report import Observation

_PLACEMENTS = "SELECT placement_name, is_default FROM information_schema.placements"
_FUNCTIONS = "SELECT routine_name, routine_type FROM information_schema.routines"
_EARLIER = timedelta(seconds=3)
_BRIEFLY = 5.0
_OF_PLACEMENTS = "the read function of a placement"


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
    answer = await asking.ask(now, now, seconds=_BRIEFLY)
    return _answered("READ_ without a placement, of a stream with per_placement_tvf", answer)


def no_functions(why: str) -> Observation:
    """The one line for a server on which no function of a placement can be asked."""
    return Observation.not_probed(_OF_PLACEMENTS, why)


async def functions(asking: Asking, now: int) -> list[Observation]:
    """Observes what the read function of each placement answers, and one that is asked for another's partition.

    Args:
        asking: sends queries of a stream with ``per_placement_tvf``.
        now: Spanner's clock, Unix nanoseconds.
    """
    try:
        found = await _functions_of(asking)
    except SpannerCdcError as error:
        return [no_functions(str(error))]
    if not found:
        return [no_functions("the change stream has none: INFORMATION_SCHEMA lists no placement's")]
    seen, partitions = list[Observation](), dict[str, tuple[str, int]]()
    for placement, function in sorted(found.items()):
        initial = await asking.ask(now, now, token=partition_id(INITIAL_TOKEN, function), seconds=_BRIEFLY)
        seen.append(_answered(f"the initial query of placement {placement}, by {function}", initial))
        for token, start in initial.children[:1]:
            partitions[placement] = (token, max(start, now))
            answer = await _of_partition(asking, function, partitions[placement])
            seen.append(_answered(f"a partition of placement {placement}, by {function}", answer))
    strangers = [(owner, other) for owner in partitions for other in sorted(found) if owner != other]
    for owner, other in strangers[:1]:
        answer = await _of_partition(asking, found[other], partitions[owner])
        seen.append(_answered(f"a partition of placement {owner}, by {found[other]}", answer))
    return seen


async def _functions_of(asking: Asking) -> Mapping[str, str]:
    """The read function of each placement, by its name, as the reader finds them."""
    client = SpannerClient(asking.source.address, asking.source.rpc_priority)
    async with client.connected():
        stream = await find_change_stream(client, asking.dialect, asking.source.change_stream)
        lister = lister_of(client, asking.dialect, stream, None)
        return {} if lister is None else (await lister.read()).functions


async def _of_partition(asking: Asking, function: str, partition: tuple[str, int]) -> ProbeAnswer:
    token, start = partition
    return await asking.ask(start, start, token=partition_id(token, function), seconds=_BRIEFLY)


def _names(database: Database, sql: str, at: datetime | None = None) -> list[str] | str:
    """The rows of a statement, a text each; or the words of its refusal."""
    try:
        with database.snapshot(read_timestamp=at) as snapshot:
            return sorted(" ".join(map(str, row)) for row in snapshot.execute_sql(sql))
    except GoogleAPICallError as error:
        return f"refused: {words_of(error)}"


def _answered(about: str, answer: ProbeAnswer) -> Observation:
    return _seen(about, f"{answer.kinds}; {answer.ended}")


def _seen(about: str, found: list[str] | str) -> Observation:
    return Observation.seen(about, found if isinstance(found, str) else "; ".join(found) or "none")
