"""The order of a new table's key is asked for once, and where it cannot be had one warning says what is taken."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from connector.core.changes import Changes
from connector.core.schemas import SchemaRegistry
from connector.errors import SpannerCdcError, StreamError, UnreachableError
from connector.spanner.key_order import KeyOrder
from tests.connector.builders import column, record

BY_POSITION = (column("A", ordinal=1, key=True), column("B", ordinal=2, key=True))
CHANGES = Changes.of([record(table_name="T", column_types=BY_POSITION)])


class Spanner:
    """Says which keys there are, fails, or says nothing."""

    def __init__(self, answer: Mapping[str, tuple[str, ...]] | SpannerCdcError | None) -> None:
        self._answer = answer
        self.asked = 0

    async def keys(self) -> Mapping[str, tuple[str, ...]]:
        self.asked += 1
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, SpannerCdcError):
            raise self._answer
        assert self._answer is not None
        return self._answer


def everything(changes: Changes) -> Changes:
    return changes


def learnt(spanner: Spanner, registry: SchemaRegistry) -> tuple[str, ...]:
    """The key once two epochs were sealed."""
    order = KeyOrder(spanner.keys, everything, patience=0.05)
    for _ in range(2):
        asyncio.run(order.learn(registry, CHANGES))
    return registry.observe("T", BY_POSITION)[0].primary_keys


def test_the_key_has_its_declared_order_and_is_requested_once(caplog: pytest.LogCaptureFixture) -> None:
    spanner = Spanner({"T": ("B", "A"), "Other": ("X",)})
    assert learnt(spanner, SchemaRegistry()) == ("B", "A")
    assert spanner.asked == 1
    assert not caplog.records


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"Other": ("X",)}, "the table no longer exists"),
        ({"T": ("A", "C")}, "it has another key now"),
        (StreamError("permission denied on the database"), "permission denied on the database"),
        (UnreachableError("Spanner did not answer"), "Spanner did not answer"),
        (None, "Spanner did not answer within 0.05 s"),
    ],
)
def test_without_an_answer_the_positions_are_used_and_one_warning_is_logged(
    answer: Mapping[str, tuple[str, ...]] | SpannerCdcError | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    spanner = Spanner(answer)
    assert learnt(spanner, SchemaRegistry()) == ("A", "B")
    assert spanner.asked == 1
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert vars(told)["fields"] == {"table": "T", "primary_keys": "A, B", "reason": reason}


def test_nothing_is_requested_for_known_or_excluded_tables() -> None:
    spanner = Spanner({})
    registry = SchemaRegistry()
    registry.observe("T", BY_POSITION)
    asyncio.run(KeyOrder(spanner.keys, everything).learn(registry, CHANGES))
    asyncio.run(KeyOrder(spanner.keys, lambda changes: changes.part(0, 0)).learn(SchemaRegistry(), CHANGES))
    assert spanner.asked == 0
