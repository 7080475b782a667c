"""The view of the page over appended changes has the versions that all events have, computed at once."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from connector.core.records import ColumnType, DataChangeRecord
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario
from tests.spark_sink.sinks.tables.history.versions import Event, versions_of
from tests.spark_sink.spools import START, record

PAGE = Path(__file__).parents[4] / "docs" / "bigquery.md"
NAMES = ("Name", "Age")
COLUMNS = (
    ColumnType("Id", '{"code":"INT64"}', True, 1),
    ColumnType("Name", '{"code":"STRING"}', False, 2),
    ColumnType("Age", '{"code":"INT64"}', False, 3),
)


def test_the_view_of_the_page_has_the_versions_of_all_changes(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    """Some changes are a nanosecond apart, some rows are inserted as a backfill does that are there already."""
    scenario, random = make_scenario(local_bigquery, "append-only"), Random(5)
    rows: dict[int, dict[str, object]] = {}
    events: list[Event] = []
    records: list[DataChangeRecord] = []
    at = START
    for _ in range(80):
        at += random.choice((1, 999, 10**6))
        for sequence, key in enumerate(random.choices(range(6), k=3), 1):
            kind = "INSERT" if key not in rows else random.choice(["UPDATE", "DELETE", "UPDATE", "INSERT"])
            if kind == "DELETE":
                del rows[key]
            elif kind != "INSERT" or key not in rows:
                rows[key] = {"Name": random.choice(["a", None]), "Age": random.choice(["1", None])}
            elif any(event.key == key and event.at == at for event in events):
                continue  # a row of a backfill is as of a time before it
            values = {} if kind == "DELETE" else dict(rows[key])
            # the table does not say which of its rows a backfill has read
            events.append(Event(key, at, kind, values, sequence, was_read=True))
            made = record(at, [key], columns=COLUMNS, values=rows.get(key, {}), mod_type=kind, sequence=sequence)
            records.append(replace(made, value_capture_type="NEW_ROW"))
    scenario.maker.seal(*records)
    scenario.run()
    (view,) = re.findall(r"```sql\nCREATE VIEW replica\.Singers_history AS\n(.*?)```", PAGE.read_text(), re.DOTALL)
    query = view.replace("SingerId", "Id").replace("replica.Singers", "`{}.Singers`")
    found = scenario.query(query)
    for row in found:
        start, end = row["_change_sequence_number"], row["_end_sequence_number"]
        assert row["_is_current"] is (end is None)
        assert (row["_valid_from"], row["_valid_to"]) == (_time(start), end and _time(end))
    have = sorted(
        (row["Id"], row["_change_sequence_number"], row["_end_sequence_number"], row["Name"], row["Age"])
        for row in found
    )
    wanted = [
        (one.key, one.start, one.end, one.values["Name"], one.values["Age"] and int(str(one.values["Age"])))
        for one in versions_of(events, NAMES)
    ]
    assert have == wanted


def _time(number: str) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(number[:16], 16) // 1000)
