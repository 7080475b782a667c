"""The file sink's dead letters: an event that cannot be encoded does not block the others."""

import json
import random
from dataclasses import replace
from pathlib import Path

import fastavro
import orjson
import pyarrow as pa
import pytest
import yaml

from connector.core.changes import Changes
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import SECOND
from connector.daemon.states.report import facts_of
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.spool import consumers
from connector.spool.manifest import SourceName
from connector.spool.sink_report import SinkReport, report_of, write_report
from connector.telemetry.metrics import ReaderMetrics
from spark_sink.dead_letters_command import main
from spark_sink.errors import SinkError
from spark_sink.sinks.files.dead_letter_files import dead_letter_prefix, discard_others
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, WrittenFile, destination_at
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.row_encoding import encode_rows
from tests.spark_sink.processes import program
from tests.spark_sink.spools import KEY, NAME, START, SpoolMaker, record

AVRO = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=True, format="avro")
COUNTED = (KEY, ColumnType("N", '{"code":"NUMERIC"}', False, 2))
NUMBERED = (KEY, ColumnType("C", '{"code":"INT64"}', False, 2))
NOTED = (KEY, ColumnType("J", '{"code":"JSON"}', False, 2))
COLLIDING = (KEY, ColumnType("a b", '{"code":"STRING"}', False, 2), ColumnType("a_b", '{"code":"STRING"}', False, 3))
REASON = "column N of table Counted holds a value that does not fit its type, and cannot be written as Avro"
COLLISION = "the columns a b and a_b of table Colliding would both be called a_b in Avro"


def counted(at: int, *numbers: str) -> list[DataChangeRecord]:
    """A record for each value of its column; `1` is a valid NUMERIC, `secret` is not."""
    return [
        record(at + n, [n], table="Counted", columns=COUNTED, values={"N": text}, sequence=n)
        for n, text in enumerate(numbers)
    ]


def written(spool: SpoolMaker, root: Path, shape: FileOptions = AVRO) -> tuple[list[WrittenFile], list[TaskReport]]:
    letters = DeadLetters(f"{root}-letters/files")
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, letters)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=shape.by_minute)
    return [file for group in groups for file in writer.write(group)], writer.rejected


def ids_in(root: Path, files: list[WrittenFile]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for file in files:
        path = root / file.path
        if path.suffix == ".avro":
            with path.open("rb") as stream:
                events: list[object] = list(fastavro.reader(stream))
        else:
            events = [json.loads(line) for line in path.read_text().splitlines()]
        out.setdefault(file.table, []).extend(event["payload"]["Id"] for event in events)  # type: ignore[index]
    return out


def letters_in(root: Path) -> dict[str, list[tuple[int, str]]]:
    place = DeadLetters(f"{root}-letters/files")
    out: dict[str, list[tuple[int, str]]] = {}
    for file in place.files():
        rows, reasons = place.read(file)
        ids = [int(orjson.loads(payload)["Id"]) for payload in rows.column("payload").to_pylist()]
        out.setdefault(file.table, []).extend(zip(ids, [why.partition(".")[0] for why in reasons], strict=True))
    return out


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_value_that_does_not_fit_makes_a_dead_letter_of_its_event_alone(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "1", "secret", "3", "4", "secret"), record(START + 9, [7, 8]))
    files, refusals = written(spool, tmp_path / "out")
    assert ids_in(tmp_path / "out", files) == {"Counted": [0, 2, 3], "Singers": [7, 8]}
    assert letters_in(tmp_path / "out") == {"Counted": [(1, REASON), (4, REASON)]}
    assert [(of.table, of.rejected, of.stopped) for of in refusals] == [("Counted", 2, False)]
    assert "secret" not in refusals[0].why


def test_a_table_that_avro_cannot_hold_is_dead_letters_and_the_others_are_files(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(record(START + 1, [1, 2], table="Colliding", columns=COLLIDING, values={"a b": "x"}))
    spool.seal(record(START + 2, [3]), record(START + 3, [4], table="Colliding", columns=COLLIDING, values={}))
    files, refusals = written(spool, tmp_path / "out", replace(AVRO, schema_files=True))
    assert ids_in(tmp_path / "out", files) == {"Singers": [3]}
    assert letters_in(tmp_path / "out") == {"Colliding": [(1, COLLISION), (2, COLLISION), (4, COLLISION)]}
    assert [(of.table, of.rejected, of.stopped) for of in refusals] == [("Colliding", 3, True)]
    assert refusals[0].why.startswith(COLLISION)
    assert not list((tmp_path / "out").rglob("d_Colliding/**"))


@pytest.mark.parametrize("form", ["jsonl", "opencdc-jsonl", "opencdc-protobuf"])
@pytest.mark.parametrize(
    ("columns", "name", "bad", "why"),
    [
        (NOTED, "J", "not JSON, secret", "column J: a value of type JSON is not JSON"),
        (NUMBERED, "C", "secret", "column C: a value of an integer type is not an integer"),
    ],
)
def test_lines_and_messages_have_dead_letters_too(
    spool: SpoolMaker,
    tmp_path: Path,
    form: str,
    columns: tuple[ColumnType, ...],
    name: str,
    bad: str,
    why: str,
) -> None:
    texts = ["1", bad, "2"]
    spool.seal(
        *(record(START + n, [n], columns=columns, values={name: text}, sequence=n) for n, text in enumerate(texts, 1)),
        record(START + 9, [9], table="Albums"),
    )
    shape = FileOptions(gzip=False, rotate_bytes=10**9, by_minute=True, format=form)
    files, _ = written(spool, tmp_path / "out", shape)
    assert {file.table: file.rows for file in files} == {"Singers": 2, "Albums": 1}
    assert letters_in(tmp_path / "out") == {"Singers": [(2, why)]}


MOMENTS = (ColumnType("At", '{"code":"TIMESTAMP"}', True, 1), ColumnType("Id", '{"code":"INT64"}', False, 2))


@pytest.mark.parametrize(("timestamps", "refused"), [("micros", [2]), ("text", [])])
def test_a_key_that_avros_microseconds_would_cut_makes_a_dead_letter(
    spool: SpoolMaker, tmp_path: Path, timestamps: str, refused: list[int]
) -> None:
    moments = {
        1: "2026-03-01T10:00:00.123456Z",
        2: "2026-03-01T10:00:00.123456001Z",
        3: "2026-03-01T10:00:00.123456000Z",
    }
    records = [replace(record(START + n, [n], columns=MOMENTS), record_sequence=f"{n:08d}") for n in moments]
    spool.seal(
        *(
            replace(one, mods=(Mod(f'{{"At":"{moments[n]}"}}', f'{{"Id":"{n}"}}', "{}"),))
            for n, one in enumerate(records, 1)
        )
    )
    files, _ = written(spool, tmp_path / "out", replace(AVRO, timestamps=timestamps))
    assert ids_in(tmp_path / "out", files) == {"Singers": [n for n in moments if n not in refused]}
    why = "column At in the key of table Singers has digits below a microsecond, which would be cut"
    assert letters_in(tmp_path / "out").get("Singers", []) == [(n, why) for n in refused]


def test_a_dead_letter_is_the_event_except_old_values_that_the_format_lacks(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "secret"))
    written(spool, tmp_path / "out")
    (rows,) = [batch for file in spool.spool.manifest(1).files for batch in spool.spool.batches(file)]
    place = DeadLetters(f"{tmp_path / 'out'}-letters/files")
    (file,) = place.files()
    assert place.read(file)[0].drop_columns(["before"]).equals(rows.drop_columns(["before"]))


def test_a_micro_batch_that_is_repeated_writes_the_same_dead_letters(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, *(random.Random(1).choice(("1", "secret")) for _ in range(100))))
    written(spool, tmp_path / "out")
    before = contents(tmp_path)
    written(spool, tmp_path / "out")
    assert contents(tmp_path) == before


def test_a_table_whose_every_event_is_rejected_has_few_dead_letter_files(spool: SpoolMaker, tmp_path: Path) -> None:
    for epoch in range(20):
        spool.seal(*counted(START + 1000 * epoch + 1, *(["secret"] * 100)))
    _, (refused,) = written(spool, tmp_path / "out")
    assert (refused.rejected, len(orjson.loads(refused.own))) == (2000, 1)


def test_an_error_that_every_row_would_cause_makes_no_dead_letter(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.seal(*counted(START + 1, "1"))

    def short(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("spark_sink.encoding.avro.Avro.encode", short)
    with pytest.raises(MemoryError):
        written(spool, tmp_path / "out")
    assert not Path(f"{tmp_path / 'out'}-letters/files").exists()


def test_an_internal_error_is_a_dead_letter_that_names_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        def encode(self, series: object, rows: pa.RecordBatch) -> None:
            raise KeyError("secret")

        def unfit(self, series: object, rows: pa.RecordBatch) -> dict[int, str]:
            return {}

    rows = pa.record_batch({"payload": ["1", "2"]})
    found = encode_rows(Odd(), None, rows)  # type: ignore[arg-type]
    assert found.rejected == [(0, "it cannot be written: KeyError"), (1, "it cannot be written: KeyError")]
    assert len(found.rows) == 0


def test_dead_letters_that_an_older_program_left_of_a_batch_are_removed(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "secret"))
    _, (refused,) = written(spool, tmp_path / "out")
    place = DeadLetters(f"{tmp_path / 'out'}-letters/files")
    (file,) = place.files()
    rows, reasons = place.read(file)
    place.put("Other", f"{dead_letter_prefix(spool.spool_id, 1)}_0x", rows, reasons)
    place.put("Counted", f"{dead_letter_prefix(spool.spool_id, 1)}_1", rows, reasons)
    place.put("Counted", f"{dead_letter_prefix(spool.spool_id, 12)}_0", rows, reasons)
    discard_others(place, spool.spool_id, {1}, set(orjson.loads(refused.own)))
    assert sorted(file.name for file in place.files()) == sorted(
        [f"{dead_letter_prefix(spool.spool_id, 12)}_0", f"{dead_letter_prefix(spool.spool_id, 1)}_0"]
    )


# The replay.


def configured(folder: Path, **sink: object) -> str:
    path = folder / "config.yaml"
    source = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
    node = {
        "source": source,
        "spool": {"path": str(folder / "spool")},
        "sink": {"path": str(folder / "out"), "dead_letters": f"{folder / 'out'}-letters", **sink},
        "spark": {
            "master": "local[2]",
            "checkpoint": str(folder / "checkpoint"),
            "trigger": "100ms",
            "config": {"spark.driver.memory": "768m"},
        },
    }
    path.write_text(yaml.safe_dump(node))
    return str(path)


def done(spool: SpoolMaker, epoch: int) -> None:
    consumers.record(spool.spool, "files", epoch, now=START)


def test_a_replay_writes_what_can_be_written_now_into_a_file_of_its_own(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.seal(*counted(START + 1, "1", "secret"), record(START + 5, [5, 6], columns=COLLIDING, values={"a b": "x"}))
    written(spool, tmp_path / "out")
    assert main(["list", configured(tmp_path, format="avro")]) == 0
    assert "3 dead letters in 2 files" in capsys.readouterr().out
    assert main(["replay", configured(tmp_path, format="avro")]) == 1
    assert "0 dead letters accepted, 0 rejected again" in capsys.readouterr().out  # the batch is not done
    done(spool, 1)
    assert main(["replay", configured(tmp_path, format="avro")]) == 1
    assert "0 dead letters accepted, 3 rejected again" in capsys.readouterr().out
    write_report(spool.spool, "files", SinkReport(first=1, refused=3, stopped={"Singers": "why"}))
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    assert "3 dead letters accepted, 0 rejected again" in capsys.readouterr().out
    replayed = list((tmp_path / "out").rglob("*.jsonl"))
    events = [json.loads(line)["payload"] for path in replayed for line in path.read_text().splitlines()]
    assert sorted(events, key=lambda event: event["Id"]) == [
        {"Id": 1, "N": "secret"},
        {"Id": 5, "a b": "x"},
        {"Id": 6, "a b": "x"},
    ]
    assert {path.parent for path in replayed} == {
        tmp_path / "out" / f"d_{table}/2026/03/01/10/00" for table in ("Counted", "Singers")
    }
    assert report_of(spool.spool, "files").stopped == {}
    assert not DeadLetters(f"{tmp_path / 'out'}-letters/files").files()


def test_a_replay_records_how_many_dead_letters_are_left(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "1", "secret"), record(START + 5, [5, 6], columns=COLLIDING, values={"a b": "x"}))
    written(spool, tmp_path / "out")
    done(spool, 1)
    write_report(spool.spool, "files", SinkReport(first=1, refused=3, stopped={}))

    def left() -> int:
        report, metrics = report_of(spool.spool, "files"), ReaderMetrics()
        metrics.reported({"files": report})
        facts = facts_of(spool.spool, 0, START)
        assert (metrics.dead_letters, facts.dead_letters) == (3, metrics.dead_letters_left)
        return facts.dead_letters

    assert main(["replay", configured(tmp_path, format="avro")]) == 1
    assert left() == 3
    assert main(["replay", configured(tmp_path, format="jsonl"), "--table", "Counted"]) == 0
    assert left() == 2
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    assert left() == 0


def test_dead_letters_that_were_removed_by_hand_are_not_left(spool: SpoolMaker, tmp_path: Path) -> None:
    done(spool, 0)
    write_report(spool.spool, "files", SinkReport(first=1, refused=3, stopped={}))
    with spool.spool.storage.locked(consumers.sink_lock("files"), "the sink runs"):
        assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    assert facts_of(spool.spool, 0, START).dead_letters == 3
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    assert facts_of(spool.spool, 0, START).dead_letters == 0


def test_a_replay_that_was_killed_before_the_dead_letters_were_gone_writes_the_same_file(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(*counted(START + 1, "1", "secret"))
    written(spool, tmp_path / "out")
    done(spool, 1)
    letters = contents(Path(f"{tmp_path / 'out'}-letters/files"))
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    before = contents(tmp_path / "out")
    for path, data in letters.items():
        Path(f"{tmp_path / 'out'}-letters/files", path).write_bytes(data)
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 0
    assert contents(tmp_path / "out") == before


def test_dead_letters_of_an_earlier_spool_are_written_and_those_whose_schema_is_not_known_stay(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = SpoolMaker(tmp_path / "former")
    for epoch in range(1, 9):
        former.seal(record(START + epoch, [epoch], columns=NUMBERED if epoch == 8 else (KEY, NAME), values={}))
    spool.seal(record(START + 10, [10]))
    done(spool, 1)
    place = DeadLetters(f"{tmp_path / 'out'}-letters/files")
    for of, epoch in ((former, 7), (former, 8), (spool, 1)):
        (rows,) = [batch for file in of.spool.manifest(epoch).files for batch in of.spool.batches(file)]
        place.put("Singers", f"{dead_letter_prefix(of.spool_id, epoch)}_0", rows, ["x"])
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 1
    assert "2 dead letters accepted, 1 rejected again" in capsys.readouterr().out
    lines = [line for path in (tmp_path / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(int(json.loads(line)["payload"]["Id"]) for line in lines) == [7, 10]
    ((left, why),) = letters_in(tmp_path / "out")["Singers"]
    assert left == 8
    assert why == f"the spool at {spool.path} does not have the schema that its row was written with"


def test_dead_letters_of_another_change_stream_in_a_shared_store_stay(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.seal(record(START + 1, [1]))
    done(spool, 1)
    place = DeadLetters(f"{tmp_path / 'out'}-letters/files")
    (rows,) = [batch for file in spool.spool.manifest(1).files for batch in spool.spool.batches(file)]
    place.put("Singers", f"{dead_letter_prefix(spool.spool_id, 1)}_0", rows, ["x"])
    own = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
    for number, name in enumerate(own):
        source = {**own, name: "another"}
        other = SpoolMaker(tmp_path / name, source=SourceName(**source))
        envelope = EnvelopeBuilder(Source(**source, default_schema="d"), stream_name=None, read_method="spanner-cdc")
        foreign = envelope.build(Changes.of([record(START + 2, [10 + number])]), SchemaRegistry(), 1)
        place.put("Singers", f"{dead_letter_prefix(other.spool_id, 1)}_0", foreign, ["x"])
    assert main(["replay", configured(tmp_path, format="jsonl")]) == 1
    assert "1 dead letter accepted, 4 rejected again" in capsys.readouterr().out
    lines = [line for path in (tmp_path / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert [json.loads(line)["payload"]["Id"] for line in lines] == [1]
    left = letters_in(tmp_path / "out")["Singers"]
    assert sorted(number for number, _ in left) == [10, 11, 12, 13]
    assert dict(left)[12] == (
        f"its row is of the change stream project/instance/another/Everything, and the spool at {spool.spool.path} of"
        " another one"
    )


@pytest.mark.long
@pytest.mark.spark
def test_the_sink_reports_its_dead_letters_and_continues(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "1", "secret"), record(START + 5, [5], table="Colliding", columns=COLLIDING))
    spool.seal(record(START + SECOND, [7], columns=(KEY, NAME)), final=True)
    with program(tmp_path / "log", "-m", "spark_sink", configured(tmp_path, format="avro")) as sink:
        sink.end_input()
        assert sink.code() == 0, sink.said()
    assert f"2 files, 2 events, 2 to the dead letters at {tmp_path / 'out'}-letters/files" in sink.said()
    assert REASON in sink.said()
    assert COLLISION in sink.said()
    report = report_of(spool.spool, "files")
    assert (report.refused, list(report.stopped)) == (2, ["Colliding"])
    assert set(letters_in(tmp_path / "out")) == {"Counted", "Colliding"}


def test_a_dead_letter_place_that_refuses_stops_the_sink(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(*counted(START + 1, "secret"))
    Path(f"{tmp_path / 'out'}-letters").write_text("in the way")
    with pytest.raises(SinkError, match=r"sink\.dead_letters"):
        written(spool, tmp_path / "out")
