"""Files of every format hold what the official emulator's tables hold, and `verify` finds a change that they lack."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND
from emulator import SampleDatabase, Workload
from tests.connector.proof.verify.delivering import AT_ONCE, delivered
from tests.integration.commands import run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

MARGIN = SECOND // 1000
COLUMNS = ("Id", "Real", "Big", "Document")


def committed(sample: SampleDatabase, *rows: tuple[object, ...]) -> int:
    """Commits rows of the table Extremes; returns when, in nanoseconds."""
    with sample.database.batch() as batch:
        batch.insert("Extremes", COLUMNS, rows)
    return int(batch.committed.timestamp() * 1_000_000) * 1000


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("options", "dialect", "capture_type"),
    [
        ({"format": "avro"}, "googlesql", "NEW_ROW"),
        ({"format": "avro", "timestamps": "text", "arrays": "multidimensional"}, "googlesql", "OLD_AND_NEW_VALUES"),
        ({"format": "avro", "object_names": "schema_table", "gzip": True}, "postgresql", "NEW_VALUES"),
        ({"format": "opencdc-jsonl"}, "postgresql", "NEW_ROW_AND_OLD_VALUES"),
        ({"format": "opencdc-protobuf", "gzip": True}, "googlesql", "OLD_AND_NEW_VALUES"),
    ],
)
def test_files_of_every_format_are_compared_row_by_row(
    options: dict[str, object], dialect: str, capture_type: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect, value_capture_type=capture_type)
    sample.run_ddl(
        "CREATE TABLE Extremes (Id INT64 NOT NULL, Real FLOAT64, Big INT64, Document JSON) PRIMARY KEY (Id, Real)"
        if dialect == "googlesql"
        else 'CREATE TABLE "Extremes" ("Id" bigint, "Real" float8, "Big" bigint, "Document" jsonb,'
        ' PRIMARY KEY ("Id", "Real"))'
    )
    document = '{"n": [1e20, 0.1, 9007199254740993, -0.0], "t": "9007199254740993"}'
    first = committed(sample, (2**53 + 1, 0.1, -(2**63), document), (-1, -0.0, 2**53, "null"), (3, 1e300, None, None))
    if dialect == "googlesql":
        committed(sample, (4, None, 4, '{"a": 1, "b": {"c": [null, true]}}'))  # PostgreSQL's keys have no NULL
    workload = Workload(sample, seed=6)
    workload.run(mods=100)
    last = committed(sample, (2**53 + 2, 0.1, 1, '"1.50"'))
    config = delivered(tmp_path, sample, first, last + MARGIN, replace(AT_ONCE, **options))  # type: ignore[arg-type]
    done = run("verify", config, "--json")
    report = json.loads(done.out)
    assert (done.code, report["differences"]) == (0, []), done.err
    assert all(table["rows"] == table["destination_rows"] for table in report["tables"])

    newest = sorted(path for path in (tmp_path / "events").rglob("*Extremes*/**/*") if path.is_file())[-1]
    newest.unlink()
    done = run("verify", config, "--json", "--show-keys")
    found = {(row["kind"], row["key"]) for row in json.loads(done.out)["first_rows"] if row["table"] == "Extremes"}
    assert done.code == 1
    assert ("missing", f"[{2**53 + 2},0.1]") in found
