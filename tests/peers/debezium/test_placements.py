"""Debezium's scenarios of placements: rows that move between them, and the functions that read one each.

A placement key (Location) changes by one UPDATE, which either side may return: no page says which. As on the real
service, records of a capture of changes hold the changed columns alone.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connector.core.timestamps import SECOND
from emulator import FaultPlan, Scenario, ScriptedServer
from emulator.scenario.history import Change, Event, Partition, PartitionMode, ReportedMod
from emulator.scenario.placements import DEFAULT, LOCATION, Placement, Placements
from emulator.scripted.fault_plan import Fault, FaultKind
from emulator.workload.journal import ModType
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, at
from tests.peers.debezium.rows import MUTABLE
from tests.peers.histories import KEY, change, column, moved, partition, stream
from tests.peers.served import daemon_reads, events_of_spool, served

CAPTURE = "OLD_AND_NEW_VALUES"
EUROPE, ASIA = "europe", "asia"
COLUMNS = {
    "FirstName": column("FirstName", "STRING", 2),
    LOCATION: column(LOCATION, "STRING", 3),
    "Title": column("Title", "STRING", 4),
}
ALBUM = column("AlbumId", "INT64", 2, key=True)
MOVE = 10
AFTER_MOVE = "00000060"
"""The record sequence of what follows the moves of keys at the same timestamp."""


class Form(NamedTuple):
    """A dialect, a partition mode, and whether a function reads each placement."""

    dialect: Dialect
    mode: PartitionMode
    has_functions: bool


PLAIN = [Form(*form, has_functions=False) for form in FORMS]
OF_PLACEMENTS = [Form(dialect, MUTABLE, has_functions=True) for dialect, mode in FORMS if mode == MUTABLE]

forms = pytest.mark.parametrize("form", [*PLAIN, *OF_PLACEMENTS])
functions = pytest.mark.parametrize("form", OF_PLACEMENTS)
sides = pytest.mark.parametrize("side", ["home", "abroad"])


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def row(instant: int, singer: int, mod_type: ModType, album: int | None = None, **more: Any) -> Change:
    """A change of a singer, or of an album of it, with the changed columns alone: ``new`` and ``old`` by name."""
    new, old = more.pop("new", {}), more.pop("old", {})
    keys = {"SingerId": str(singer)} | ({} if album is None else {"AlbumId": str(album)})
    return change(
        instant,
        singer,
        server_transaction_id=more.pop("transaction", f"at {instant}"),
        table="Singers" if album is None else "Albums",
        columns=(KEY, *(() if album is None else (ALBUM,)), *(COLUMNS[name] for name in {**old, **new})),
        mods=(ReportedMod(keys, new, old),),
        mod_type=mod_type,
        value_capture_type=CAPTURE,
        **more,
    )


def relocation(side: str, singer: int = 1) -> Change:
    """The UPDATE that moves a row from home abroad."""
    sequence = "00000000" if side == "home" else AFTER_MOVE
    new, old = {LOCATION: EUROPE}, {LOCATION: DEFAULT}
    return row(at(MOVE), singer, "UPDATE", new=new, old=old, record_sequence=sequence)


def placed(form: Form, *partitions: Partition) -> Scenario:
    """A stream of these partitions, whose placements have functions if the form says so."""
    script = replace(stream(*partitions, dialect=form.dialect, mode=form.mode), value_capture_type=CAPTURE)
    if not form.has_functions:
        return script
    each = tuple(Placement(name, ORIGIN - 1) for name in (DEFAULT, EUROPE, ASIA))
    return replace(script, placements=Placements(each))


def in_placement(name: str, form: Form, token: str, events: Sequence[Event]) -> Partition:
    return replace(partition(token, 0, events), placement=name if form.has_functions else "")


def moving(form: Form, side: str, before: Sequence[Event], after: Sequence[Event]) -> Scenario:
    """A stream whose row moves from home, in the default placement, to abroad; one of them returns the UPDATE."""
    leaves, arrives = list[Event](), list[Event]()
    if form.mode == MUTABLE:
        leaves.append(moved(at(MOVE), "home", destinations=("abroad",)))
        arrives.append(moved(at(MOVE), "abroad", sources=("home",)))
    if side == "home":
        leaves.insert(0, relocation(side))
    else:
        arrives.append(relocation(side))
    return placed(
        form,
        in_placement(DEFAULT, form, "home", [*before, *leaves]),
        in_placement(EUROPE, form, "abroad", [*arrives, *after]),
    )


def read_while_home_is_late(scenario: Scenario, spool: Path) -> None:
    """Reads a stream whose server answers home's first query late: what follows the move is there before it."""
    plan = FaultPlan().rule(Fault(FaultKind.LATENESS, pause=3 * SECOND // 10), token="home")
    with served(scenario, faults=plan) as server:
        daemon_reads(server, spool)
    assert plan.struck.total() == 1


def changes_of(spool: Path) -> list[tuple[str, int, str, dict[str, str]]]:
    """The table, the singer, the mod type and the values of each event, in order."""
    found = []
    for event in events_of_spool(spool):
        payload, metadata = json.loads(event["payload"]), event["source_metadata"]
        values = {name: payload[name] for name in COLUMNS if name in payload}
        found.append((metadata["table"], int(payload["SingerId"]), metadata["mod_type"], values))
    return found


INSERTED = row(at(5), 1, "INSERT", new={"FirstName": "a", LOCATION: DEFAULT})
MOVED = ("Singers", 1, "UPDATE", {LOCATION: EUROPE})


# shouldOrderRecordsCorrectlyWhenRowMovesBetweenPlacements
@pytest.mark.long(but=5)
@forms
@sides
def test_a_row_that_moves_between_placements_is_read_in_order_whichever_side_returns_the_update(
    form: Form, side: str, spool: Path
) -> None:
    follow_up = row(at(MOVE) + 1, 1, "UPDATE", new={"FirstName": "b"}, old={"FirstName": "a"})
    read_while_home_is_late(moving(form, side, [INSERTED], [follow_up]), spool)
    assert changes_of(spool) == [
        ("Singers", 1, "INSERT", {"FirstName": "a", LOCATION: DEFAULT}),
        MOVED,
        ("Singers", 1, "UPDATE", {"FirstName": "b"}),
    ]


# the same with a restart, as shouldNotLoseOrReorderEventsWhenStoppedDuringForcedKeyRangeSplit has it of splits
@pytest.mark.long(but=2)
@forms
@sides
def test_a_reader_that_is_stopped_at_a_move_between_placements_loses_repeats_and_reorders_nothing(
    form: Form, side: str, spool: Path
) -> None:
    follow_up = row(at(MOVE) + 1, 1, "UPDATE", new={"FirstName": "b"}, old={"FirstName": "a"})
    counts = []
    with served(moving(form, side, [INSERTED], [follow_up])) as server:
        for end in (at(MOVE) - 1, at(MOVE), at(30)):
            daemon_reads(server, spool, end=end)
            counts.append(len(events_of_spool(spool)))
    assert counts == [1, 2, 3]
    assert [one[3] for one in changes_of(spool)[1:]] == [{LOCATION: EUROPE}, {"FirstName": "b"}]


# shouldMoveInterleavedChildRowsWithParentPlacementChange
@forms
def test_interleaved_rows_that_move_with_their_parent_have_no_event_of_their_own_and_keep_their_order(
    form: Form, spool: Path
) -> None:
    before = [INSERTED, *(row(at(5 + n), 1, "INSERT", n, new={"Title": f"{n}"}) for n in (1, 2))]
    after = [row(at(MOVE) + n, 1, "UPDATE", n, new={"Title": f"new {n}"}, old={"Title": f"{n}"}) for n in (1, 2)]
    read_while_home_is_late(moving(form, "abroad", before, after), spool)
    assert changes_of(spool)[1:] == [
        ("Albums", 1, "INSERT", {"Title": "1"}),
        ("Albums", 1, "INSERT", {"Title": "2"}),
        MOVED,
        ("Albums", 1, "UPDATE", {"Title": "new 1"}),
        ("Albums", 1, "UPDATE", {"Title": "new 2"}),
    ]


# shouldOrderCascadingDeleteCorrectlyRelativeToInFlightPlacementMove
@pytest.mark.long(but=4)
@forms
def test_a_cascading_delete_right_after_a_move_is_read_once_after_it_in_one_transaction(
    form: Form, spool: Path
) -> None:
    in_all: dict[str, Any] = {"transaction": "the delete", "number_of_records_in_transaction": 2}
    before = [INSERTED, row(at(6), 1, "INSERT", 1, new={"Title": "1"})]
    after = [
        row(at(MOVE) + 1, 1, "DELETE", 1, old={"Title": "1"}, record_sequence="00000001", **in_all),
        row(at(MOVE) + 1, 1, "DELETE", old={"FirstName": "a"}, record_sequence="00000002", **in_all),
    ]
    read_while_home_is_late(moving(form, "home", before, after), spool)
    kinds = [one[:3] for one in changes_of(spool)]
    assert kinds[2:] == [MOVED[:3], ("Albums", 1, "DELETE"), ("Singers", 1, "DELETE")]
    *_, album, singer = (event["source_metadata"]["server_transaction_id"] for event in events_of_spool(spool))
    assert album == singer == "the delete"


def rows_of_each(form: Form) -> Scenario:
    """A stream with a row in each placement, which stays there."""
    places = {DEFAULT: 1, EUROPE: 2, ASIA: 3}
    rows = {name: row(at(5 + n), n, "INSERT", new={LOCATION: name}) for name, n in places.items()}
    return placed(form, *(in_placement(name, form, f"of {name}", [one]) for name, one in rows.items()))


def asked(server: ScriptedServer) -> set[str]:
    """The tokens that were asked of any function."""
    return {token for token in server.engine.queries if token}


# shouldReadEachPlacementOnlyFromItsTvf
@functions
@pytest.mark.parametrize("name", [DEFAULT, EUROPE, ASIA])
def test_the_rows_of_a_placement_come_from_its_function_alone(form: Form, name: str, spool: Path) -> None:
    with served(rows_of_each(form)) as server:
        daemon_reads(server, spool, placements=[name])
        assert asked(server) == {f"of {name}"}
    assert [one[3] for one in changes_of(spool)] == [{LOCATION: name}]


@functions
def test_the_functions_of_all_placements_together_return_each_row_once(form: Form, spool: Path) -> None:
    with served(rows_of_each(form)) as server:
        daemon_reads(server, spool)
        assert server.engine.refused == 0
    assert [one[3][LOCATION] for one in changes_of(spool)] == [DEFAULT, EUROPE, ASIA]


# testIsExternalPlacementTokenRejectedByAllConfiguredTvfsAndCached: there the token is tried on each function
@functions
def test_a_move_in_from_a_placement_that_is_not_read_holds_up_nothing_and_its_token_is_never_asked(
    form: Form, spool: Path
) -> None:
    after = [row(at(MOVE) + 1, 1, "UPDATE", new={"FirstName": "b"}, old={"FirstName": "a"})]
    with served(moving(form, "abroad", [INSERTED], after)) as server:
        daemon_reads(server, spool, end=at(MOVE), placements=[EUROPE])
        daemon_reads(server, spool, placements=[EUROPE])
        assert asked(server) == {"abroad"}
        assert server.engine.refused == 0
    assert [one[3] for one in changes_of(spool)] == [{LOCATION: EUROPE}, {"FirstName": "b"}]


@functions
def test_a_move_out_to_a_placement_that_is_not_read_ends_nothing_and_its_token_is_never_asked(
    form: Form, spool: Path
) -> None:
    scenario = moving(form, "home", [INSERTED], [row(at(MOVE) + 1, 1, "UPDATE", new={"FirstName": "b"})])
    with served(scenario) as server:
        daemon_reads(server, spool, end=at(MOVE), placements=[DEFAULT])
        daemon_reads(server, spool, placements=[DEFAULT])
        assert asked(server) == {"home"}
        assert server.engine.refused == 0
    assert changes_of(spool)[1:] == [MOVED]
