"""Probes of what Spanner's pages leave open: 100 ms, directed reads, ends of the mutable mode, placements, splits.

Each answer is printed word for word: codes and texts, counts and names, and no value of a row.
"""

from collections import Counter

from connector.config.directed_reads import DirectedReads, ReplicaSelection
from connector.core.dialects import MUTABLE
from connector.core.records import PartitionEventRecord
from connector.core.timestamps import SECOND, format_rfc3339
from spark_sink.self_test.probes.change_stream import Asking, ProbeAnswer, ProbedRange
from spark_sink.self_test.report import Observation

QUICK = SECOND // 10
"""A heartbeat that is shorter than the documented minimum of one second, and is in use."""

_BRIEFLY = 5.0
_LATE = 2 * 3600 * SECOND
_READ_ONLY = DirectedReads(include=(ReplicaSelection(type="READ_ONLY"),))


async def of_queries(asking: Asking, now: int) -> list[Observation]:
    """Observes the answers to queries that are documented otherwise, or not at all.

    Args:
        asking: sends the queries.
        now: Spanner's clock, Unix nanoseconds.
    """
    quick = await asking.ask(now, now, heartbeat=QUICK, seconds=_BRIEFLY)
    directed = Asking(asking.source.model_copy(update={"directed_reads": _READ_ONLY}), asking.dialect, asking.mode)
    replica = await directed.ask(now, now, seconds=_BRIEFLY)
    seen = [
        _answered(f"a heartbeat of 100 ms ({asking.mode})", quick),
        _answered(f"a read that is directed to READ_ONLY replicas ({asking.mode})", replica),
    ]
    if asking.mode == MUTABLE:
        for about, end in (("without an end", None), ("that ends in two hours", now + _LATE)):
            answer = await asking.ask(now, end, seconds=_BRIEFLY)
            seen.append(_answered(f"a query {about} ({asking.mode})", answer))
    return seen


async def after_splits(asking: Asking, range_: ProbedRange, at: int) -> Observation:
    """Observes the partitions and moves that follow splits which were asked for; there may be none.

    Args:
        asking: sends the queries.
        range_: of the commits.
        at: when the splits were asked for, by Spanner's clock, Unix nanoseconds.
    """
    _, answers = await asking.ask_all(range_.start, range_.end)
    started = {token for one in answers.values() for token, start in one.children if start >= at}
    moves = Counter[str]()
    for answer in answers.values():
        for _, record in answer.records:
            if isinstance(record, PartitionEventRecord) and record.commit_timestamp >= at:
                moves["in" if record.moves_in else "out"] += 1
    return Observation.seen(
        f"after AddSplitPoints ({asking.mode})",
        f"from {format_rfc3339(at)} on: {len(started)} of {len(answers)} partitions start, {moves['in']} events"
        f" of keys that move in and {moves['out']} of keys that move out",
    )


def _answered(about: str, answer: ProbeAnswer) -> Observation:
    is_taken = answer.ended in ("OK", "still open")
    detail = f"accepted: {answer.kinds}; it is {answer.ended}" if is_taken else answer.ended
    return Observation.seen(about, detail)
