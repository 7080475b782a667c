"""A published cut as a row of the table of cuts, and versions of Delta that VACUUM has removed."""

import pytest

from connector.core.timestamps import parse
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sinks.tables.cuts.cuts_table import cut_of, deletes_of, row_of, text_of
from spark_sink.sinks.tables.cuts.vacuumed import DeltaCommit, is_vacuumed
from spark_sink.sinks.tables.reserved_names import kept_names

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def test_a_cut_is_the_same_once_it_was_a_row() -> None:
    cut = PublishedCut(
        timestamp=parse("2026-03-01T10:00:03.000000007Z"),
        epoch=7,
        spool_id="abc",
        published_at=parse("2026-03-01T10:00:04.5Z"),
        tables={"sales.Orders": TableAtCut(version="3"), "Lines": TableAtCut(incomplete="its backfill is not done")},
    )
    (row,) = row_of(cut, "tables", "apply").to_pylist()
    assert [(one["table"], one["name"], one["version"], one["incomplete"]) for one in row["tables"]] == [
        ("Lines", "Lines", None, "its backfill is not done"),
        ("sales.Orders", "sales_Orders", 3, None),
    ]
    assert row["timestamp"] == "2026-03-01T10:00:03.000000007Z"
    row["published_at"] = cut.published_at // 1000
    assert cut_of(row) == cut


def test_timestamps_of_cuts_sort_as_text() -> None:
    texts = ["2026-03-01T10:00:03Z", "2026-03-01T10:00:03.000000001Z", "2026-03-01T10:00:03.0001Z"]
    found = [text_of(parse(text)) for text in texts]
    assert found == sorted(found)
    assert found[0] == "2026-03-01T10:00:03.000000000Z"


def commit(version: int, at: int, operation: str, **parameters: str) -> DeltaCommit:
    return DeltaCommit(version, at, operation, parameters)


def vacuum(version: int, at: int, retention: int) -> DeltaCommit:
    return commit(version, at, "VACUUM START", specifiedRetentionMillis=str(retention), defaultRetentionMillis="9")


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], False),
        ([commit(5, DAY, "MERGE")], False),
        ([commit(5, DAY, "MERGE"), vacuum(6, 2 * DAY, 0)], True),
        ([commit(5, DAY, "OPTIMIZE"), vacuum(6, 2 * DAY, 0)], True),
        ([commit(5, DAY, "MERGE"), vacuum(6, 2 * DAY, 7 * DAY)], False),
        ([vacuum(5, DAY, 0), commit(6, DAY, "VACUUM END"), commit(7, 2 * DAY, "MERGE")], False),
        ([vacuum(5, DAY, 0), commit(6, DAY, "MERGE"), vacuum(7, DAY, 0)], True),
        ([commit(5, DAY, "WRITE", mode="Append"), vacuum(6, 2 * DAY, 0)], False),
        ([commit(5, DAY, "WRITE", mode="Overwrite"), vacuum(6, 2 * DAY, 0)], True),
    ],
)
def test_a_version_is_vacuumed_if_its_files_were_replaced_longer_ago_than_the_retention(
    later: list[DeltaCommit], expected: bool
) -> None:
    assert is_vacuumed(later[::-1]) is expected


@pytest.mark.parametrize(
    ("mode", "deletes", "expected"),
    [
        ("merge", "apply", "apply"),
        ("merge", "flag", "flag"),
        ("history", "apply", "apply"),
        ("append", "apply", None),
    ],
)
def test_a_cut_says_whether_deleted_rows_are_kept_only_for_a_backfill(
    mode: str, deletes: str, expected: str | None
) -> None:
    assert deletes_of(mode, deletes) == expected


def test_no_table_can_have_the_name_of_the_table_of_cuts() -> None:
    (why,) = kept_names("_Cuts", ["Id"], format="delta", merges=True, below_path=True, properties={})
    assert "table _Cuts has the name of the table of published cuts" in why
