"""The report of a comparison says what was repaired, and what is left."""

from collections import Counter

from connector.core.timestamps import format_rfc3339, parse
from connector.proof.verify.report import RepairReport, VerifyReport
from connector.proof.verify.rows import RowDifference, RowKind

AT = parse("2026-03-01T10:00:00Z")


def reported(*kinds: RowKind) -> VerifyReport:
    report = VerifyReport("files", AT, ("A",))
    for number, kind in enumerate(kinds):
        report.add(RowDifference(kind, "A", (), f"[{number}]"))
    counts: Counter[tuple[str, RowKind]] = Counter(("A", kind) for kind in kinds if kind is not RowKind.REPEATED)
    report.repair = RepairReport(counts)
    return report


def test_rows_are_to_repair_until_the_repair_is_delivered() -> None:
    report = reported(RowKind.MISSING, RowKind.MISSING, RowKind.EXTRA)
    assert report.repair is not None
    assert report.left == 3
    lines = report.to_text(show_keys=False).splitlines()
    assert "to repair: A: 2 missing, 0 different, 1 extra" in lines
    assert lines[-1].endswith("3 rows differ, 3 of them to repair")
    report.repair.timestamp, report.repair.is_delivered = AT, True
    assert report.left == 0
    lines = report.to_text(show_keys=False).splitlines()
    assert "repaired: A: 2 missing, 0 different, 1 extra" in lines
    assert lines[-1].endswith("3 rows differ, 3 of them repaired as of " + format_rfc3339(AT))
    assert report.to_json(show_keys=False)["repair"] == {
        "at": format_rfc3339(AT),
        "delivered": True,
        "dead_letters": 0,
        "rows": 3,
        "tables": [{"table": "A", "missing": 2, "different": 0, "extra": 1}],
    }


def test_dead_letters_and_keys_with_several_rows_are_left() -> None:
    report = reported(RowKind.DIFFERENT, RowKind.REPEATED)
    assert report.repair is not None
    report.repair.timestamp, report.repair.is_delivered, report.repair.dead_letters = AT, True, 1
    assert report.left == 2
    assert any("1 of the rows became dead letters" in note for note in report.notes())
    lines = report.to_text(show_keys=False).splitlines()
    assert "delivered: A: 0 missing, 1 different, 0 extra" in lines, "it may be a dead letter that is different"
    assert lines[-1].endswith(f"2 rows differ, 0 of them repaired as of {format_rfc3339(AT)}, 1 among the dead letters")
    assert any("1 keys have several rows" in note for note in report.notes())


def test_nothing_is_left_to_repair_where_nothing_differs() -> None:
    report = reported()
    assert report.left == 0
    assert report.to_text(show_keys=False).endswith("no differences")


def test_a_note_says_why_rows_that_are_counted_cannot_be_repaired() -> None:
    report = reported(RowKind.EXTRA)
    assert report.repair is not None
    report.repair.refused = "--repair: for a reason"
    assert report.notes() == ["--repair: for a reason"]


def test_a_table_is_equal_once_no_row_is_left_that_differs_or_may() -> None:
    report = reported(RowKind.MISSING, RowKind.EXTRA)
    assert report.repair is not None
    assert report.equal_tables == []
    report.repair.is_delivered = True
    assert report.equal_tables == ["A"]
    report.repair.dead_letters = 1
    assert report.equal_tables == [], "one of the rows may be among them"
    assert reported().equal_tables == ["A"]
    repeated = reported(RowKind.MISSING, RowKind.REPEATED)
    assert repeated.repair is not None
    repeated.repair.is_delivered = True
    assert repeated.equal_tables == []
    unsure = reported()
    unsure.tables = ("A", "B")
    unsure.omitted["A"] = 1
    assert unsure.equal_tables == ["B"]
    unsure.unsure_tables.add("B")
    assert unsure.equal_tables == []
