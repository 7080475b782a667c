"""In which order mutations are applied, and how they are divided."""

import grpc
import pytest

from connector.spanner.errors import CallAction, CallError
from connector.spanner.relations import Relations, depths_of
from spark_sink.sinks.spanner.destination_tables import late_parents
from spark_sink.sinks.spanner.writing.mutations import CELLS, DELETE, WRITE, RowMutation, commits, encoded, leveled
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange, MergedRow
from spark_sink.sinks.spanner.writing.transactions import RefusedWriteError, is_of_the_transaction


def mutation(operation: str, table: str, *values: object, is_replaced: bool = False) -> RowMutation:
    row = MergedRow(table, values[:1], ("Id",), {}, is_replaced=is_replaced)
    return RowMutation(operation, table, tuple(f"C{number}" for number in range(len(values))), values, row)


def test_children_are_deeper_than_every_parent() -> None:
    interleaved = {"Songs": "Albums", "Albums": "Singers"}
    depths = depths_of(interleaved, {"Songs": {"Genres"}, "Plays": {"Songs", "Singers"}})
    assert depths == {"Singers": 0, "Genres": 0, "Albums": 1, "Songs": 2, "Plays": 3}


def test_tables_that_refer_to_each_other_have_a_depth() -> None:
    depths = depths_of({}, {"A": {"B"}, "B": {"A"}, "C": {"B"}, "D": {"D"}})
    assert depths["C"] > depths["B"]
    assert depths["A"] != depths["B"]
    assert depths.get("D", 0) == 0


@pytest.mark.parametrize(("parent", "child"), [("Users", "Addresses"), ("Addresses", "Users")])
def test_an_interleaved_table_is_deeper_even_if_its_parent_refers_to_it(parent: str, child: str) -> None:
    depths = depths_of({child: parent}, {parent: {child}, "Orders": {child}})
    assert depths == {parent: 0, child: 1, "Orders": 2}


def test_a_backfill_that_reads_a_table_before_one_that_the_destination_needs_is_rejected_with_both_names() -> None:
    tables = ("Singers", "Albums", "Songs")
    relations = Relations(tables, {"Albums": "Singers"}, frozenset(), {"Songs": frozenset({"Albums"})}, frozenset())
    assert late_parents(relations, tables) == []
    assert late_parents(relations, ["Songs", "Singers"]) == [], "the other one is not read"
    first, second = late_parents(relations, ["Songs", "Albums", "Singers"])
    assert first.startswith("table Songs of the destination needs rows of Albums, which a backfill reads after it")
    assert second.startswith("table Albums of the destination needs rows of Singers")


@pytest.mark.parametrize("takes_others", [True, False])
def test_rows_that_others_refer_to_are_deleted_last_or_first_if_that_takes_none_with_them(takes_others: bool) -> None:
    found = leveled(
        [(0, mutation(DELETE, "T", "1")), (0, mutation(WRITE, "T", "2"))],
        [(0, mutation(DELETE, "P", "3"))],
        takes_others=takes_others,
    )
    names = [[(one.operation, one.table) for level in levels for one in level] for levels in found.orders()]
    assert names[:2] == [[(DELETE, "T"), (WRITE, "T"), (DELETE, "P")], [(WRITE, "T"), (DELETE, "T"), (DELETE, "P")]]
    assert names[2:] == ([] if takes_others else [[(DELETE, "T"), (DELETE, "P"), (WRITE, "T")]])


def test_new_rows_are_written_last_if_others_are_deleted_with_a_row() -> None:
    """A unique value moves from a deleted row to a new one, and a row that was there refers to another one first."""

    def written(table: str, key: str, mod_type: str) -> RowMutation:
        row = MergedRow(table, (key,), ("Id",), {})
        row.apply(KeyedChange(table, mod_type, True, "{}", "2026-03-01T10:00:00Z", "0", "t", (1, 0)), {"Id": key})
        return RowMutation(WRITE, table, ("Id",), (key,), row)

    found = leveled(
        [
            (0, written("Users", "2", "INSERT")),
            (0, written("Users", "3", "UPDATE")),
            (1, written("Orders", "5", "UPDATE")),
            (1, written("Orders", "6", "INSERT")),
        ],
        [(0, mutation(DELETE, "Users", "1"))],
        takes_others=True,
    )
    *_, last = found.orders()
    order = [(one.operation, one.table, one.values[0]) for level in last for one in level]
    assert order == [
        (WRITE, "Users", "3"),
        (WRITE, "Orders", "5"),
        (DELETE, "Users", "1"),
        (WRITE, "Users", "2"),
        (WRITE, "Orders", "6"),
    ]


def test_children_are_deleted_first_and_written_last() -> None:
    found = leveled(
        (depth, mutation(operation, f"T{depth}", "1")) for depth in (1, 0, 2) for operation in (WRITE, DELETE)
    )
    order = [(one.operation, one.table) for level in found.in_order() for one in level]
    assert order == [(DELETE, "T2"), (DELETE, "T1"), (DELETE, "T0"), (WRITE, "T0"), (WRITE, "T1"), (WRITE, "T2")]


def test_a_row_that_is_written_again_is_deleted_before_in_either_order() -> None:
    again = mutation(DELETE, "T", "1", is_replaced=True)
    found = leveled([(0, mutation(DELETE, "T", "2")), (0, again), (0, mutation(WRITE, "T", "1", "a"))])
    _, levels = found.orders()
    order = [(*one.row.key, one.operation) for level in levels for one in level]
    assert order == [("1", DELETE), ("1", WRITE), ("2", DELETE)]


def test_a_commit_has_no_more_cells_than_the_limit() -> None:
    rows = [mutation(WRITE, "T", *map(str, range(1000))) for _ in range(50)]
    divided = list(commits(rows))
    assert [len(one) for one in divided] == [CELLS // 1000] * 2 + [10]
    assert [row for one in divided for row in one] == rows


def test_values_are_encoded_as_spanner_has_them() -> None:
    values: list[object] = ["text", None, True, 1.5, 7, ["a", None, []], "2026-03-01T10:00:00.123456789Z"]
    (one,) = encoded([mutation(WRITE, "T", *values)])
    (row,) = one.insert_or_update.values
    kinds = [value.WhichOneof("kind") for value in row.values]
    assert kinds == [
        "string_value",
        "null_value",
        "bool_value",
        "number_value",
        "number_value",
        "list_value",
        "string_value",
    ]
    assert [value.WhichOneof("kind") for value in row.values[5].list_value.values] == [
        "string_value",
        "null_value",
        "list_value",
    ]


def test_rows_with_the_same_columns_are_one_mutation() -> None:
    rows = [mutation(WRITE, "T", "1", "a"), mutation(WRITE, "T", "2", "b"), mutation(DELETE, "T", "3")]
    write, delete = encoded(rows)
    assert len(write.insert_or_update.values) == 2
    assert len(delete.delete.key_set.keys) == 1


@pytest.mark.parametrize(
    ("code", "message", "is_done_again"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "Invalid transaction ID.", True),
        (grpc.StatusCode.FAILED_PRECONDITION, "This transaction has been invalidated by a later one.", True),
        (grpc.StatusCode.INVALID_ARGUMENT, "The transaction contains too many mutations.", False),
        (grpc.StatusCode.FAILED_PRECONDITION, "Foreign key constraint is violated.", False),
        (grpc.StatusCode.ALREADY_EXISTS, 'Unique index violation at key ["the transaction was closed"]', False),
    ],
)
def test_a_transaction_that_is_gone_is_done_again_and_its_rows_are_not_blamed(
    code: grpc.StatusCode, message: str, is_done_again: bool
) -> None:
    assert is_of_the_transaction(CallError(code, message, CallAction.STOP)) is is_done_again


def test_what_is_too_large_is_known_by_spanners_own_words() -> None:
    """A refused value may hold them, too."""
    large = CallError(grpc.StatusCode.INVALID_ARGUMENT, "The transaction contains too many mutations.", CallAction.STOP)
    taken = CallError(grpc.StatusCode.ALREADY_EXISTS, "Row [too many mutations] already exists", CallAction.STOP)
    long_key = "Number of bytes for key of table K is 9000 which exceeds the maximum of 8192."
    of_key = CallError(grpc.StatusCode.INVALID_ARGUMENT, long_key, CallAction.STOP)
    text = "Request payload size exceeds the limit: 104857600 bytes."
    of_request = CallError(grpc.StatusCode.INVALID_ARGUMENT, text, CallAction.STOP)
    found = [RefusedWriteError(one).is_too_large for one in (large, of_request, taken, of_key)]
    assert found == [True, True, False, False]
