from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import ColumnType
from connector.core.schemas import SchemaRegistry, TableSchema, canonical_type
from tests.connector.builders import COLUMNS, column, record

SINGERS = TableSchema.of("Singers", COLUMNS)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"code": "INT64"}', '{"code":"INT64"}'),
        (
            '{"typeAnnotation":"PG_NUMERIC","code":"NUMERIC"}',
            '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}',
        ),
        (
            '{"code":"ARRAY","arrayElementType":{"protoTypeFqn":"a.B","code":"PROTO"}}',
            '{"array_element_type":{"code":"PROTO","proto_type_fqn":"a.B"},"code":"ARRAY"}',
        ),
    ],
)
def test_a_type_is_one_text_however_it_was_written(text: str, canonical: str) -> None:
    assert canonical_type(text) == canonical
    assert canonical_type(canonical) == canonical


def test_columns_are_in_the_order_of_their_positions() -> None:
    assert TableSchema.of("Singers", reversed(COLUMNS)) == SINGERS


def test_the_key_is_forty_hex_digits() -> None:
    assert len(bytes.fromhex(SINGERS.key)) == 20
    assert SINGERS.key == SINGERS.key.lower()


def test_equal_schemas_have_equal_keys() -> None:
    assert TableSchema.of("Singers", COLUMNS[::-1]).key == SINGERS.key


@pytest.mark.parametrize(
    "other",
    [
        TableSchema.of("Albums", COLUMNS),
        TableSchema.of("Singers", COLUMNS[:1]),
        TableSchema.of("Singers", (COLUMNS[0], column("Name", "BYTES", 2))),
        TableSchema.of("Singers", (COLUMNS[0], column("Name", "STRING", 3))),
        TableSchema.of("Singers", COLUMNS, ["Name"]),
    ],
)
def test_another_schema_has_another_key(other: TableSchema) -> None:
    assert other.key != SINGERS.key


def test_a_record_with_fewer_columns_is_not_a_schema_change() -> None:
    assert SINGERS.widened(COLUMNS[:1]) is SINGERS


def test_another_order_of_the_columns_is_not_a_schema_change() -> None:
    assert SINGERS.widened(COLUMNS[::-1]) is SINGERS


def test_a_new_column_widens_the_schema_and_changes_its_key() -> None:
    wider = SINGERS.widened([column("Age", "INT64", 3)])
    assert [c.name for c in wider.columns] == ["Id", "Name", "Age"]
    assert wider.key != SINGERS.key
    assert wider.primary_keys == ("Id",)


def test_a_changed_type_is_a_schema_change() -> None:
    changed = SINGERS.widened([column("Name", "BYTES", 2)])
    assert [c.type for c in changed.columns] == ['{"code":"INT64"}', '{"code":"BYTES"}']
    assert changed.key != SINGERS.key


def test_the_given_order_of_the_primary_key_is_kept() -> None:
    keys = [column("A", ordinal=1, key=True), column("B", ordinal=2, key=True)]
    schema = TableSchema.of("T", keys, ["B", "A"])
    assert schema.primary_keys == ("B", "A")
    assert schema.widened([column("C", ordinal=3)]).primary_keys == ("B", "A")


def test_without_information_schema_the_key_columns_positions_order_the_key() -> None:
    keys = [column("B", ordinal=2, key=True), column("A", ordinal=1, key=True)]
    assert TableSchema.of("T", keys).primary_keys == ("A", "B")


BY_POSITION = (column("A", ordinal=1, key=True), column("B", ordinal=2, key=True), column("C", ordinal=3))


def changes_of(*record_schemas: tuple[str, tuple[ColumnType, ...]]) -> Changes:
    return Changes.of([record(table_name=table, column_types=columns) for table, columns in record_schemas])


def test_a_key_that_is_declared_before_its_table_is_observed_has_the_declared_order() -> None:
    registry = SchemaRegistry()
    assert registry.unordered(changes_of(("T", BY_POSITION))) == {"T": ("A", "B")}
    registry.declare("T", ("B", "A"))
    assert registry.unordered(changes_of(("T", BY_POSITION))) == {}
    assert registry.observe("T", BY_POSITION)[0].primary_keys == ("B", "A")
    wider = (*BY_POSITION, column("D", ordinal=4))
    assert registry.observe("T", wider)[0].primary_keys == ("B", "A")


def test_a_table_that_is_created_again_with_another_key_has_the_declared_order() -> None:
    registry = SchemaRegistry([TableSchema.of("T", BY_POSITION, ("B", "A"))])
    assert registry.unordered(changes_of(("T", BY_POSITION))) == {}
    recreated = (*BY_POSITION[:2], column("C", ordinal=3, key=True))
    assert registry.unordered(changes_of(("T", recreated))) == {"T": ("A", "B", "C")}
    registry.declare("T", ("C", "A", "B"))
    assert registry.observe("T", recreated)[0].primary_keys == ("C", "A", "B")


def test_a_declared_key_of_other_columns_is_ignored() -> None:
    registry = SchemaRegistry()
    registry.declare("T", ("B", "X"))
    assert registry.unordered(changes_of(("T", BY_POSITION))) == {"T": ("A", "B")}
    assert registry.observe("T", BY_POSITION)[0].primary_keys == ("A", "B")


def test_only_keys_of_several_columns_in_the_records_need_an_order() -> None:
    both = changes_of(("T", BY_POSITION), ("Singers", COLUMNS))
    assert SchemaRegistry().unordered(both.part(1)) == {}
    assert SchemaRegistry().unordered(both.part(0, 1)) == {"T": ("A", "B")}


names = st.text(min_size=1, max_size=8)
columns = st.lists(
    st.builds(ColumnType, names, st.just('{"code":"INT64"}'), st.booleans(), st.integers(1, 50)),
    unique_by=lambda c: c.name,
    min_size=1,
    max_size=6,
)


@given(columns)
def test_a_schema_is_read_as_it_was_written(some: list[ColumnType]) -> None:
    schema = TableSchema.of("T", some)
    again = TableSchema.from_json(schema.to_json())
    assert (again, again.key) == (schema, schema.key)


@given(columns, st.randoms(use_true_random=False))
def test_the_schema_does_not_depend_on_the_order_in_which_columns_were_seen(
    some: list[ColumnType], rng: Random
) -> None:
    first = TableSchema.of("T", some)
    shuffled = [*some]
    rng.shuffle(shuffled)
    assert TableSchema.of("T", shuffled).columns == first.columns


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'"x"', b'{"table":"T","primary_keys":[],"columns":[1]}'])
def test_content_that_is_not_a_schema_is_rejected(data: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        TableSchema.from_json(data)


def test_the_file_contains_its_version() -> None:
    assert orjson.loads(SINGERS.to_json())["version"] == 1


def test_a_registry_starts_with_the_given_schemas() -> None:
    registry = SchemaRegistry([SINGERS])
    assert registry.observe("Singers", COLUMNS[:1]) == (SINGERS, SINGERS.key)
    assert registry.keys == {"Singers": SINGERS.key}
    assert registry.by_key(SINGERS.key) is registry.schema("Singers")


def test_a_registry_widens_a_table_record_by_record() -> None:
    registry = SchemaRegistry()
    _, first = registry.observe("Singers", COLUMNS[:1])
    schema, second = registry.observe("Singers", COLUMNS)
    again, third = registry.observe("Singers", COLUMNS[:1])
    assert schema == again == SINGERS
    assert first != second == third
    assert registry.by_key(first).columns == COLUMNS[:1]


def test_each_table_has_its_own_schema() -> None:
    registry = SchemaRegistry([SINGERS])
    _, key = registry.observe("Albums", COLUMNS)
    assert registry.keys == {"Singers": SINGERS.key, "Albums": key}
    assert key != SINGERS.key


def test_an_unknown_table_has_no_schema() -> None:
    with pytest.raises(KeyError):
        SchemaRegistry().schema("Singers")


def test_a_table_that_was_created_again_has_the_key_in_its_records() -> None:
    recreated = SINGERS.widened([column("Id", "INT64", 1), column("Name", "STRING", 2, key=True)])
    assert recreated.primary_keys == ("Name",)
    assert [each.is_primary_key for each in recreated.columns] == [False, True]
    assert recreated.key != SINGERS.key
    assert recreated.widened([column("Name", "STRING", 2, key=True)]) is recreated


def test_a_column_with_another_spelling_replaces_the_former_one() -> None:
    respelled = SINGERS.widened([COLUMNS[0], column("NAME", "STRING", 3)])
    assert [each.name for each in respelled.columns] == ["Id", "NAME"]
    assert respelled.widened([COLUMNS[0], column("NAME", "STRING", 3)]) is respelled
