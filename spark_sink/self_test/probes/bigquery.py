"""Probes of BigQuery: what docs/bigquery.md assumes and no page of Google's confirms."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import orjson
from google.api_core.exceptions import GoogleAPIError
from google.auth.exceptions import GoogleAuthError

from connector.envelope.opencdc_protobuf import varint
from spark_sink.errors import SinkError
from spark_sink.self_test.report import Observation, SelfTestVerdict
from spark_sink.sinks.bigquery.client import BigQueryClient, connected
from spark_sink.sinks.bigquery.rows.builder import SURELY_TAKEN, message_type
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget, Field
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter

PATIENCE = 600.0
"""Seconds for which BigQuery may take its time."""

_ERRORS = (SinkError, GoogleAPIError, GoogleAuthError, OSError)
_STREAMS = 150
_COLUMNS = 899
_POLL = 1.0
_ID, _NAME, _CHANGE = Field("id", "INT64"), Field("name", "STRING"), Field("_CHANGE_TYPE", "STRING")


class RefutedError(Exception):
    """An assumption does not hold; the text says what was seen instead."""


@dataclass(slots=True)
class Place:
    """A dataset for probes.

    Attributes:
        target: the project and its endpoints.
        dataset: its name.
        prefix: of the tables that probes make.
        patience: seconds.
    """

    target: BigQueryTarget
    dataset: str
    prefix: str
    patience: float = PATIENCE
    client: BigQueryClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = BigQueryClient(self.target, patience=60.0)

    def table(self, name: str, *fields: Field, key: tuple[str, ...] = ()) -> BigQueryTable:
        """Creates a table."""
        made = BigQueryTable(name, self.dataset, f"{self.prefix}{name}", (), fields or (_ID, _NAME), key, key)
        self.client.create(made)
        return made

    def path(self, table: BigQueryTable) -> str:
        """The table, quoted for a statement."""
        return f"`{self.target.project}.{table.dataset}.{table.name}`"

    def query(self, sql: str, table: BigQueryTable) -> None:
        """Runs a statement about a table."""
        self.client.query(sql.replace("{}", self.path(table)), table.dataset, table.name)

    def texts(self, sql: str, table: BigQueryTable) -> list[str]:
        """The result of a statement with one column of texts."""
        return self.client.texts(sql.replace("{}", self.path(table)), table.dataset, table.name)

    def until(self, sql: str, table: BigQueryTable, wanted: list[str]) -> None:
        """Waits until a statement returns these texts.

        Raises:
            RefutedError: it does not.
        """
        deadline = time.monotonic() + self.patience
        while (found := self.texts(sql, table)) != wanted:
            if time.monotonic() > deadline:
                raise RefutedError(f"{found} instead of {wanted} after {self.patience:.0f} s")
            time.sleep(_POLL)

    def writer(self, table: BigQueryTable) -> BigQueryWriter:
        """Writes the table's rows."""
        return BigQueryWriter(self.target, table, patience=self.patience)

    def append(self, table: BigQueryTable, *rows: tuple[int, str | None], change: str = "") -> None:
        """Appends rows to the default stream; with the type of a change BigQuery merges them."""
        writer = self.writer(table)
        message = message_type("Row", (*table.fields, _CHANGE) if change else table.fields)
        _all_taken(writer.append(writer.default_stream, message, [_row(*row, change) for row in rows]))

    def upsert(self, table: BigQueryTable, *rows: tuple[int, str]) -> None:
        """Sends changes that BigQuery merges."""
        self.append(table, *rows, change="UPSERT")


def _all_taken(rejected: list[tuple[int, str]]) -> None:
    if rejected:
        raise RefutedError(f"rows are rejected: {rejected[0][1]}")


def _recreated(place: Place) -> str:
    table = place.table("recreated")
    place.append(table, (1, "a"), (2, "b"))
    place.client.delete(table.dataset, table.name)
    place.client.create(table)
    place.append(table, (3, "c"), (4, "d"))
    place.until("SELECT CAST(id AS STRING) FROM {} ORDER BY id", table, ["3", "4"])
    return "both rows are in the new table"


def _key_given(place: Place) -> str:
    table = place.table("keyed")
    place.query("INSERT {} (id, name) VALUES (1, 'before'), (2, 'before')", table)
    place.query("ALTER TABLE {} ADD PRIMARY KEY (id) NOT ENFORCED", table)
    place.upsert(table, (2, "after"), (3, "after"))
    wanted = ["1 before", "2 after", "3 after"]
    place.until("SELECT CONCAT(CAST(id AS STRING), ' ', name) FROM {} ORDER BY id", table, wanted)
    return "changes are merged with rows that were there before"


def _floats(place: Place) -> str:
    name = f"{place.prefix}floats"
    fields = [_ID, Field("value", "FLOAT64")]
    rows = b"".join(
        orjson.dumps({"id": number, "value": text}) + b"\n"
        for number, text in enumerate(("NaN", "Infinity", "-Infinity"))
    )
    place.client.load(place.dataset, name, fields, rows, job_id=f"self-test-{uuid4()}")
    table = BigQueryTable("floats", place.dataset, name, (), tuple(fields), (), ())
    found = place.texts("SELECT LOWER(CAST(value AS STRING)) FROM {} ORDER BY id", table)
    if found != ["nan", "inf", "-inf"]:
        raise RefutedError(f"the values are {found}")
    return "a load job takes NaN, Infinity and -Infinity"


def _case(place: Place) -> str:
    tables = place.table("Case"), place.table("case")
    for number, table in enumerate(tables):
        place.append(table, (number, "x"))
    for number, table in enumerate(tables):
        place.until("SELECT CAST(id AS STRING) FROM {}", table, [str(number)])
    return "each has its own row"


def _renamed(place: Place) -> str:
    table = place.table("renamed")
    place.append(table, (1, "a"))
    place.query("ALTER TABLE {} RENAME COLUMN name TO name_before", table)
    place.client.add_columns(table, [Field("name", "BYTES")])
    newer = BigQueryTable("renamed", table.dataset, table.name, (), (_ID, Field("name", "BYTES")), (), ())
    place.append(newer, (2, "b"))
    place.until("SELECT CAST(COUNT(name) AS STRING) FROM {}", table, ["1"])
    return "the name is free at once, for another type"


def _copied(place: Place) -> str:
    table = place.table("copied", key=("id",))
    place.upsert(table, (1, "a"), (2, "b"))
    copy = BigQueryTable("copy", table.dataset, f"{table.name}_before", (), table.fields, (), ())
    place.query(f"CREATE TABLE {place.path(copy)} AS SELECT * FROM {{}}", table)
    place.query("DROP TABLE {}", table)
    found = place.texts("SELECT CAST(id AS STRING) FROM {} ORDER BY id", copy)
    if found != ["1", "2"]:
        raise RefutedError(f"the copy has {found}")
    return "a query copies the changes, and the table can be dropped"


_REFUSED = (
    "ALTER TABLE {} DROP COLUMN id",
    "ALTER TABLE {} RENAME COLUMN id TO other",
    "ALTER TABLE {} ALTER COLUMN id SET DATA TYPE NUMERIC",
    "ALTER TABLE {} DROP PRIMARY KEY",
    "UPDATE {} SET name = 'x' WHERE TRUE",
)


def _refused(place: Place) -> str:
    table = place.table("refused", key=("id",))
    place.upsert(table, (1, "a"))
    taken = []
    for statement in _REFUSED:
        with suppress(SinkError):
            place.query(statement, table)
            taken.append(statement.replace("{} ", ""))
    if taken:
        raise RefutedError(f"accepted: {'; '.join(taken)}")
    return f"{len(_REFUSED)} statements are refused"


def _many_streams(place: Place) -> str:
    table = place.table("streams")
    writer = place.writer(table)
    streams = [writer.create_pending() for _ in range(_STREAMS)]
    for number, stream in enumerate(streams):
        _all_taken(writer.append(stream, message_type("Row", table.fields), [_row(number, "x")], 0))
        writer.finalize(stream)
    writer.commit(streams, entry="a self-test")
    place.until("SELECT CAST(COUNT(*) AS STRING) FROM {}", table, [str(_STREAMS)])
    return f"{_STREAMS} streams are committed at once"


def _failed_job(place: Place) -> str:
    table = place.table("job")
    job = f"self-test-{uuid4()}"
    client = connected(place.target)
    location = client.get_dataset(f"{place.target.project}.{place.dataset}").location
    with suppress(GoogleAPIError):
        client.query("SELECT ERROR('a self-test')", job_id=job, location=location, job_retry=None).result()
    try:
        client.query(f"SELECT COUNT(*) FROM {place.path(table)}", job_id=job, location=location, job_retry=None)
    except GoogleAPIError as error:
        return f"refused with {error.code}" if hasattr(error, "code") else "refused"
    raise RefutedError("a second job ran under the id of a failed one")


def _long_merge(place: Place) -> str:
    names = [f"c{number:04}".ljust(128, "x") for number in range(_COLUMNS)]
    fields = (_ID, *(Field(name, "STRING") for name in names))
    into, of = place.table("merge", *fields), place.table("merge_from", *fields)
    sets = ", ".join(f"{name} = IF(s.{name} IS NULL, t.{name}, s.{name})" for name in names)
    listed = ", ".join(["id", *names])
    statement = (
        f"MERGE {{}} t USING {place.path(of)} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {sets}"
        f" WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({listed})"
    )
    place.query(statement, into)
    return f"one of {len(statement):,} characters and {_COLUMNS} columns is planned"


def _large_row(place: Place) -> str:
    text = "x" * (SURELY_TAKEN - 1000)
    appended, merged = place.table("large"), place.table("large_merged", key=("id",))
    place.append(appended, (1, text))
    place.upsert(merged, (1, text))
    for table in (appended, merged):
        place.until("SELECT CAST(LENGTH(name) AS STRING) FROM {}", table, [str(len(text))])
    return f"{len(text):,} bytes are taken, appended and merged"


def _new_column(place: Place) -> str:
    table = place.table("widened", _ID)
    wider = BigQueryTable("widened", table.dataset, table.name, (), (_ID, _NAME), (), ())
    place.append(table, (1, None))
    place.client.add_columns(table, [_NAME])
    began = time.monotonic()
    place.append(wider, (2, "x"))
    return f"after {time.monotonic() - began:.1f} s"


def _staleness(place: Place) -> str:
    table = place.table("stale", key=("id",))
    place.client.set_max_staleness(table, 900 * 10**9)
    found = place.client.find(table.dataset, table.name)
    shown = found.max_staleness if found else None
    if shown != "0-0 0 0:15:0":
        raise RefutedError(f"it is shown as {shown!r}")
    return f"as {shown}"


_PROBES: tuple[tuple[str, Callable[[Place], str]], ...] = (
    ("rows that are written right after a table was dropped and created again are in the new one", _recreated),
    ("a key can be given to a table that has rows, and changes are merged with these", _key_given),
    ('a load job takes "NaN", "Infinity" and "-Infinity" for a FLOAT64', _floats),
    ("names of tables that differ in case are two tables", _case),
    ("the name of a column that was renamed is free at once", _renamed),
    ("a table with recent changes can be copied by a query, and dropped", _copied),
    ("what the double refuses of a table with changes is refused", _refused),
    ("BatchCommitWriteStreams takes as many streams as a micro-batch has tasks", _many_streams),
    ("a job under an id that a failed job has is refused", _failed_job),
    ("a MERGE of close to a million characters is planned", _long_merge),
    ("a row of 9.5 MB is taken, appended and merged", _large_row),
    ("the Storage Write API learns of a new column within ten minutes", _new_column),
    ("REST shows max_staleness as 0-0 0 0:15:0", _staleness),
)

NOT_PROBED = (
    ("two MERGE statements at once are all that could insert a row twice", "it cannot be shown by a few attempts"),
    ("when a pending stream expires", "it takes days"),
    ("a delete is forgotten after two days", "it takes days"),
    ("the errors of quotas", "it would take a full quota"),
)


def observed(place: Place) -> Iterator[Observation]:
    """Every assumption: confirmed, refuted or not probed. What an emulator does says nothing of the service."""
    for about, probe in _PROBES:
        yield _observation(place, about, probe)
    for about, why in NOT_PROBED:
        yield Observation.not_probed(f"BigQuery: {about}", why)


def _observation(place: Place, about: str, probe: Callable[[Place], str]) -> Observation:
    try:
        verdict, answer, detail = SelfTestVerdict.CONFIRMED, "yes", probe(place)
    except (RefutedError, *_ERRORS) as error:
        verdict, answer, detail = SelfTestVerdict.REFUTED, "no", _words(error)
    if place.target.is_emulated:
        return Observation.seen(f"BigQuery's emulator: {about}", f"{answer}: {detail}")
    return Observation(f"BigQuery: {about}", verdict, detail)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def why_no_queries(target: BigQueryTarget) -> str:
    """The reason why the server runs no queries; empty if it does."""
    try:
        list(connected(target).query("SELECT 1", job_retry=None).result(timeout=60))
    except _ERRORS as error:
        return _words(error)
    return ""


def _row(number: int, name: str | None, change: str = "") -> bytes:
    """The message of a row: ``id``, ``name``, and the type of its change."""
    encoded = b"\x08" + varint(number)
    if name is not None:
        encoded += b"\x12" + varint(len(name.encode())) + name.encode()
    return encoded + (b"\x1a" + varint(len(change)) + change.encode() if change else b"")


def delete_tables(target: BigQueryTarget, dataset: str, names: Sequence[str]) -> None:
    """Deletes the tables of a dataset whose names hold one of these texts."""
    client = connected(target)
    for table in client.list_tables(f"{target.project}.{dataset}"):
        if any(name in table.table_id for name in names):
            client.delete_table(table.reference, not_found_ok=True)
