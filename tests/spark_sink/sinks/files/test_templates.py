"""The files as the Dataflow templates read them: which change of a row they take for the newest.

A source that they do not know they take for Oracle. Its changes of a row are in the order of the timestamp in whole
seconds, then of scn, rs_id and ssn; of equal ones a delete comes last. Into BigQuery that is an ORDER BY, into other
databases a comparison of the four joined as text, which drops whatever is not greater. Of an Avro file they take rs_id
and ssn from the sort keys.
"""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from connector.core.timestamps import SECOND, parse
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.spark_sink.spools import NO_DEAD_LETTERS, START, SpoolMaker, record

KEYS = 12
Row = dict[str, Any]


def sorted_by(event: Row) -> tuple[int, int, str, int]:
    metadata, stamp = event["source_metadata"], event["source_timestamp"]
    if isinstance(stamp, str):
        return parse(stamp) // SECOND, metadata["scn"], metadata["rs_id"], metadata["ssn"]
    *_, sequence, index = event["sort_keys"]
    return int(stamp.timestamp()), metadata["scn"], sequence, index


def merged_in_bigquery(events: Iterable[Row]) -> dict[int, Row]:
    newest: dict[int, Row] = {}
    for event in events:
        key = event["payload"]["Id"]
        held = newest.get(key)
        if held is None or by_rank(event) > by_rank(held):
            newest[key] = event
    return newest


def by_rank(event: Row) -> tuple[object, ...]:
    return (*sorted_by(event), not event["source_metadata"]["is_deleted"])


def applied_as_sql(events: Iterable[Row]) -> dict[int, Row]:
    newest: dict[int, Row] = {}
    for event in events:
        key = event["payload"]["Id"]
        held = newest.get(key)
        if held is None or joined(event) > joined(held):
            newest[key] = event
    return newest


def joined(event: Row) -> str:
    return "-".join(map(str, sorted_by(event)))


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def records(path: Path) -> list[Row]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))  # type: ignore[arg-type]


def history(spool: SpoolMaker, seed: int) -> dict[int, str | None]:
    """Seals many changes of few rows within one second; returns each row's name at the end, None where it is gone."""
    rows: dict[int, str | None] = {}
    random_changes, at = random.Random(seed), START
    for _ in range(6):
        changes = []
        for _ in range(30):
            at += random_changes.choice((1, 1000, 1_000_000))
            for sequence in range(random_changes.randint(1, 3)):
                ids = random_changes.sample(range(KEYS), random_changes.randint(1, 11))
                gone, name = random_changes.random() < 0.3, f"{at} {sequence}"
                changes.append(
                    record(
                        at,
                        ids,
                        mod_type="DELETE" if gone else "UPDATE",
                        values={"Name": name},
                        sequence=sequence,
                        transaction=f"t{at}",
                    )
                )
                rows.update(dict.fromkeys(ids, None if gone else name))
        spool.seal(*changes)
    assert at < START + SECOND
    return rows


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("apply", [merged_in_bigquery, applied_as_sql])
@pytest.mark.parametrize(("form", "read"), [("jsonl", lines), ("avro", records)])
def test_the_templates_end_with_the_right_rows_after_many_changes_within_a_second(
    spool: SpoolMaker,
    tmp_path: Path,
    form: str,
    read: Callable[[Path], list[Row]],
    apply: Callable[[Iterable[Row]], dict[int, Row]],
    seed: int,
) -> None:
    expected = history(spool, seed)
    shape = FileOptions(gzip=False, rotate_bytes=20_000, by_minute=True, format=form)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(tmp_path / "out")), shape, NO_DEAD_LETTERS)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=True)
    events = [e for group in groups for file in writer.write(group) for e in read(tmp_path / "out" / file.path)]
    random.Random(seed).shuffle(events)
    newest = apply(events)
    assert {
        key: None if event["source_metadata"]["is_deleted"] else event["payload"]["Name"]
        for key, event in newest.items()
    } == expected


@pytest.mark.parametrize(("form", "read"), [("jsonl", lines), ("avro", records)])
def test_what_the_templates_sort_by_ends_the_source_metadata(
    spool: SpoolMaker, tmp_path: Path, form: str, read: Callable[[Path], list[Row]]
) -> None:
    spool.seal(record(START + 7, [1, 2], sequence=3, transaction="t"))
    shape = FileOptions(gzip=False, rotate_bytes=10**6, by_minute=True, format=form)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(tmp_path / "out")), shape, NO_DEAD_LETTERS)
    (group,) = file_groups(spool.spool.manifests(1, 1), by_minute=True)
    (file,) = writer.write(group)
    metadata = [event["source_metadata"] for event in read(tmp_path / "out" / file.path)]
    assert [list(fields.items())[-4:] for fields in metadata] == [
        [("scn", START + 7), ("rs_id", "00000003"), ("ssn", index), ("tx_id", "t")] for index in (0, 1)
    ]


@pytest.mark.parametrize(("form", "read"), [("jsonl", lines), ("avro", records)])
def test_a_minute_that_an_older_program_began_is_written_as_it_wrote_it(
    spool: SpoolMaker, tmp_path: Path, form: str, read: Callable[[Path], list[Row]]
) -> None:
    spool.seal(record(START + 7))
    before = f'{{"by_minute":true,"format":"{form}","gzip":false,"rotate_bytes":1000000}}'
    shape = FileOptions.from_text(before)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(tmp_path / "out")), shape, NO_DEAD_LETTERS)
    (group,) = file_groups(spool.spool.manifests(1, 1), by_minute=True)
    (file,) = writer.write(group)
    (event,) = read(tmp_path / "out" / file.path)
    assert list(event["source_metadata"])[-1] == "is_deleted"
