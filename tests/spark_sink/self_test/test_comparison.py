"""Commits are compared with events: any one difference is found and named."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sink.self_test.comparison import HistoryComparison
from spark_sink.self_test.workload import DELETE, Committed
from tests.spark_sink.self_test.planned import TABLES, events, workload

Events = list[dict[str, Any]]
SEEDS = st.integers(0, 2**32)


def differences(committed: list[Committed], found: Events, **wanted: bool) -> list[str]:
    return HistoryComparison(TABLES, committed, **wanted).differences(found)


@settings(max_examples=10)
@given(seed=SEEDS, whole_rows=st.booleans())
def test_events_as_they_were_committed_do_not_differ(seed: int, whole_rows: bool) -> None:
    committed, _ = workload(seed)
    found = events(committed, whole_rows=whole_rows)
    assert differences(committed, found, whole_rows=whole_rows, ordered=True) == []


def omitted(found: Events, at: int) -> None:
    del found[at]


def repeated(found: Events, at: int) -> None:
    found.append(copy.deepcopy(found[at]))


def never_committed(found: Events, at: int) -> None:
    found[at]["source_timestamp"] = "2001-01-01T00:00:00Z"


def of_another_type(found: Events, at: int) -> None:
    metadata = found[at]["source_metadata"]
    metadata["mod_type"] = "UPDATE" if metadata["mod_type"] != "UPDATE" else "INSERT"


def with_another_tag(found: Events, at: int) -> None:
    found[at]["source_metadata"]["transaction_tag"] += "x"


def with_another_value(found: Events, at: int) -> None:
    payload = found[at]["payload"]
    name = list(payload)[-1]
    payload[name] = {"another": "value"}


def without_a_column(found: Events, at: int) -> None:
    payload = found[at]["payload"]
    del payload[next(name for name in payload if name not in ("id", "line", "code", "number", "day", "valid"))]


FAULTS: dict[Callable[[Events, int], None], str] = {
    omitted: "missing: ",
    repeated: "repeated: ",
    never_committed: "extra: ",
    of_another_type: "its mod type is",
    with_another_tag: "its transaction tag is",
    with_another_value: "has another value",
    without_a_column: "is missing",
}


@pytest.mark.long(but=3)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@settings(max_examples=10)
@given(seed=SEEDS)
def test_any_one_fault_is_found_and_named(fault: Callable[[Events, int], None], seed: int) -> None:
    committed, _ = workload(seed % 5)
    found = events(committed)
    whole = [at for at, event in enumerate(found) if event["source_metadata"]["mod_type"] != DELETE]
    at = Random(seed).choice(whole)
    if fault is with_another_value:
        whole = [at for at in whole if "note" in found[at]["payload"]]
        at = Random(seed).choice(whole)
        found[at]["payload"]["note"] = found[at]["payload"].pop("note")  # the last one, and not of the key
    fault(found, at)
    assert any(FAULTS[fault] in one for one in differences(committed, found)), differences(committed, found)


def test_events_in_another_order_than_that_of_the_commits_are_named_where_an_order_is_promised() -> None:
    committed, _ = workload(0)
    found = events(committed)
    found.append(found.pop(0))
    assert differences(committed, found) == []
    assert [one.split(":")[0] for one in differences(committed, found, ordered=True)] == ["order"]


def test_an_event_that_cannot_be_read_is_a_difference() -> None:
    committed, _ = workload(0)
    found = [*events(committed), {"object": "Unknown"}]
    assert differences(committed, found) == [f"event {len(found) - 1} cannot be read (KeyError)"]
