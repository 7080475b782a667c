"""Fields of a record that are often misread: sequences, transactions, capture types, values, schema changes."""

import logging
from pathlib import Path

import pytest

from emulator import Scenario
from emulator.scenario.capture import CAPTURE_TYPES
from emulator.scenario.history import PartitionMode, ReportedMod
from emulator.workload.tables import Dialect
from emulator.workload.values import Value
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, at
from tests.integration.delivered import in_spanners_encoding, of_rows
from tests.peers.histories import COLUMNS, KEY, change, column, partition, stream
from tests.peers.served import daemon_reads, events_of_spool, served, tailed

ALBUMS = (KEY, column("AlbumId", "INT64", 2, key=True), column("Title", "STRING", 3))


def spread(records: int) -> Scenario:
    """Returns a transaction over two partitions and two tables that claims to have so many records."""
    both = {
        "server_transaction_id": "over both",
        "number_of_records_in_transaction": records,
        "number_of_partitions_in_transaction": 2,
    }
    album = change(
        at(5),
        7,
        table="Albums",
        columns=ALBUMS,
        mods=(ReportedMod({"SingerId": "7", "AlbumId": "1"}, {"Title": "private title"}, {}),),
        record_sequence="00000017",
        **both,
    )
    return stream(
        partition("one", 0, [change(at(5), 1, record_sequence="00000003", **both)]),
        partition("two", 0, [album, change(at(5), 2, record_sequence="00000904", **both)]),
    )


def test_sequences_are_not_contiguous_and_a_transaction_is_complete_by_the_number_of_its_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(spread(3)) as server:
        assert tailed(server).singers == [1, 7, 2]
    assert "incomplete" not in caplog.text


def test_tables_are_filtered_after_a_transaction_is_complete(caplog: pytest.LogCaptureFixture) -> None:
    with served(spread(3)) as server:
        done = tailed(server, tables={"include": ["Singers"]})
    assert done.singers == [1, 2]
    assert {event["source_metadata"]["number_of_records_in_transaction"] for event in done.events} == {3}
    assert "incomplete" not in caplog.text


def test_a_transaction_with_a_missing_record_is_logged_though_its_table_is_excluded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(spread(4)) as server:
        tailed(server, tables={"include": ["sales.*"]})
    (logged,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert logged.getMessage() == "a transaction is incomplete"
    assert "private title" not in caplog.text


# every mod type in every capture type, with composite keys, every column type, cascades and a column that is added
@pytest.mark.long(but=2)
@pytest.mark.parametrize("captures", CAPTURE_TYPES)
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_each_capture_type_delivers_what_it_captures_and_nothing_else(
    dialect: Dialect, mode: PartitionMode, captures: str, tmp_path: Path
) -> None:
    scenario = Scenario.generate(
        31,
        origin=ORIGIN,
        seconds=30,
        dialect=dialect,
        mode=mode,
        value_capture_type=captures,
        transactions=80,
        schema_change=True,
    )
    assert {mod.mod_type for mod in scenario.committed} == {"INSERT", "UPDATE", "DELETE"}
    with served(scenario) as server:
        daemon_reads(server, tmp_path / "spool")
    assert of_rows(events_of_spool(tmp_path / "spool")) == in_spanners_encoding(scenario.committed, captures)


def test_an_update_to_the_value_that_was_there_is_an_event() -> None:
    mod = ReportedMod({"SingerId": "1"}, {"FirstName": "same"}, {"FirstName": "same"})
    scenario = stream(partition("one", 0, [change(at(5), 1, mods=(mod,), value_capture_type="OLD_AND_NEW_VALUES")]))
    with served(scenario) as server:
        assert tailed(server).payloads == [{"SingerId": 1, "FirstName": "same"}]


def test_changes_to_one_row_in_one_transaction_are_in_the_order_in_which_they_were_made() -> None:
    kinds = ("INSERT", "UPDATE", "UPDATE", "DELETE", "INSERT")
    records = [
        change(
            at(5),
            1,
            server_transaction_id="the one",
            record_sequence=f"{4 * number:08d}",
            mod_type=kind,
            mods=(ReportedMod({"SingerId": "1"}, {} if kind == "DELETE" else {"FirstName": str(number)}, {}),),
            number_of_records_in_transaction=len(kinds),
        )
        for number, kind in enumerate(kinds)
    ]
    with served(stream(partition("one", 0, records))) as server:
        done = tailed(server)
    assert [event["source_metadata"]["mod_type"] for event in done.events] == list(kinds)
    assert [payload.get("FirstName") for payload in done.payloads] == ["0", "1", "2", None, "4"]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_values_keep_spanners_encoding_to_the_digit_in_the_spool(
    dialect: Dialect, mode: PartitionMode, tmp_path: Path
) -> None:
    columns = (
        column("Widened", "FLOAT32", 2),
        column("Large", "INT64", 3),
        column("Oid", "INT64", 4, pg="PG_OID"),
        column("Exact", "NUMERIC", 5),
        column("Raw", "BYTES", 6),
        column("Document", "JSON", 7),
        column("select", "DATE", 8),
        column("with space", "STRING", 9),
    )
    values: dict[str, Value] = {
        "Widened": 3.140000104904175,
        "Large": "9223372036854775807",
        "Oid": "4294967295",
        "Exact": "-0.000000001",
        "Raw": "/+8=",
        "Document": '{"a":1.10}',
        "select": "2026-01-02",
        "with space": "",
    }
    record = change(at(5), 1, columns=(KEY, *columns), mods=(ReportedMod({"SingerId": "1"}, values, {}),))
    with served(stream(partition("one", 0, [record]), dialect=dialect, mode=mode)) as server:
        daemon_reads(server, tmp_path / "spool")
        (payload,) = tailed(server).payloads
    (row,) = events_of_spool(tmp_path / "spool")
    for part in ("3.140000104904175", '"9223372036854775807"', '"4294967295"', '"-0.000000001"', '"/+8="'):
        assert part in row["payload"]
    unified = {"SingerId": 1, "Large": 2**63 - 1, "Oid": 2**32 - 1, "Document": {"a": 1.1}}
    assert payload == {**values, **unified}


def test_a_system_transaction_is_delivered_and_marked() -> None:
    records = [
        change(at(number), number, mod_type="DELETE", is_system_transaction=system)
        for number, system in enumerate((True, False), 1)
    ]
    with served(stream(partition("one", 0, records))) as server:
        events = tailed(server).events
    assert [event["source_metadata"]["system_transaction"] for event in events] == [True, False]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_schema_change_splits_a_transactions_records_and_both_are_delivered(
    dialect: Dialect, mode: PartitionMode, caplog: pytest.LogCaptureFixture
) -> None:
    extra = column("Extra", "INT64", 9)
    records = [
        change(at(5), 1, server_transaction_id="split", record_sequence="00000000", number_of_records_in_transaction=2),
        change(
            at(5),
            2,
            server_transaction_id="split",
            record_sequence="00000001",
            number_of_records_in_transaction=2,
            columns=(*COLUMNS, extra),
            mods=(ReportedMod({"SingerId": "2"}, {"FirstName": "name 2", "Extra": "5"}, {}),),
        ),
    ]
    with served(stream(partition("one", 0, records), dialect=dialect, mode=mode)) as server:
        done = tailed(server)
    assert done.payloads == [{"SingerId": 1, "FirstName": "name 1"}, {"SingerId": 2, "FirstName": "name 2", "Extra": 5}]
    assert len({event["schema_key"] for event in done.events}) == 2
    assert "incomplete" not in caplog.text
