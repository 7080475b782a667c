"""Gaps of a destination with a row for each row where a change stream omits changes."""

import pytest

from connector.config.sinks import WatchedStream, sink_type

MERGING = [
    {"type": "bigquery", "dataset": "d"},
    {"type": "bigquery", "dataset": "d", "mode": "merge-load"},
    {"type": "tables", "path": "/lake", "format": "delta", "mode": "merge"},
    {"type": "spanner", "database": "other"},
    {"type": "spanner", "database": "other", "mode": "transactions"},
]
APPENDING = [
    {"type": "bigquery", "dataset": "d", "mode": "append-only"},
    {"type": "bigquery", "dataset": "d", "mode": "changelog"},
    {"type": "tables", "path": "/lake", "format": "parquet", "mode": "append"},
    {"type": "files"},
]


def warnings(node: dict[str, str], options: dict[str, str]) -> list[str]:
    kind = sink_type(node["type"])
    sink = kind.config_type.model_validate(node)
    return kind.warnings(sink, WatchedStream("S", "NEW_ROW", "googlesql", "d", (), options=options))


@pytest.mark.parametrize("node", MERGING, ids=str)
@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("exclude_delete", "rows that are deleted stay at the destination"),
        ("exclude_ttl_deletes", "rows that are deleted by a row deletion policy stay at the destination"),
        ("exclude_insert", "rows that are inserted are missing at the destination"),
        ("exclude_update", "rows that are updated keep their old values at the destination"),
        ("allow_txn_exclusion", "transactions that ask to be excluded are missing at the destination"),
    ],
)
def test_a_sink_that_merges_warns_of_what_the_stream_omits(node: dict[str, str], option: str, what: str) -> None:
    found = [line for line in warnings(node, {option: "true"}) if option in line]
    assert found == [f"source.change_stream: S has {option}: {what}"]


@pytest.mark.parametrize("node", MERGING, ids=str)
@pytest.mark.parametrize("text", ["false", "FALSE", ""])
def test_an_option_that_is_off_is_no_reason_to_warn(node: dict[str, str], text: str) -> None:
    options = {"exclude_delete": text, "retention_period": "7d", "allow_txn_exclusion": text}
    assert [line for line in warnings(node, options) if "stream: S has" in line] == []


@pytest.mark.parametrize("node", APPENDING, ids=str)
def test_a_sink_that_keeps_each_change_has_what_the_stream_has(node: dict[str, str]) -> None:
    assert [line for line in warnings(node, {"exclude_delete": "true"}) if "exclude_delete" in line] == []
