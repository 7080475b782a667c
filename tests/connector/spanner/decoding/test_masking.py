"""Columns are excluded and hashed as records are decoded, by every decoder of each form of rows alike."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.masking.digests import Digester
from connector.core.masking.rules import STRING_TYPE, ColumnRules, HashRule
from connector.core.records import DataChangeRecord
from connector.errors import ConfigurationError
from connector.spanner.decoding.decoder import decoder
from connector.spanner.decoding.row_fields import UnknownRecordError
from tests.property.decoding.change_rows import DataChange, Style, googlesql, postgresql, text, value
from tests.property.decoding.framed import field
from tests.property.decoding.row_types import METADATA

SALT = "a salt of the tests"
RULES = ColumnRules(("*.Secret",), (HashRule("Users.Id", SALT), HashRule("Users.Email", SALT)))
STRING, INT64 = '{"code":"STRING"}', '{"code":"INT64"}'
COLUMNS = [
    ("Id", INT64, True, 1),
    ("Email", STRING, False, 2),
    ("Secret", STRING, False, 3),
    ("Name", STRING, False, 4),
]
PLANTED = '{"Email":"planted-email","Secret":"planted-secret","Name": "kept as it is"}'


def change(
    new: str = PLANTED, old: str = "{}", table: str = "Users", columns: list[Any] = COLUMNS, keys: str = '{"Id":"4711"}'
) -> DataChange:
    return DataChange(
        commit_timestamp="2026-01-02T03:04:05.123456Z",
        record_sequence="00000000",
        server_transaction_id="tx",
        is_last_record_in_transaction_in_partition=True,
        table=(table, columns),
        mods=[(keys, new, old), (keys, old, new)],
        mod_type="UPDATE",
        value_capture_type="OLD_AND_NEW_VALUES",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag="",
        is_system_transaction=False,
    )


def rows(dialect: str, some: list[DataChange]) -> list[Value]:
    if dialect == "googlesql":
        return [value([googlesql(one)]) for one in some]
    return [Value(string_value=text(postgresql(one), Style())) for one in some]


def decoded(
    dialect: str, some: list[DataChange], rules: ColumnRules | None, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> list[DataChangeRecord]:
    monkeypatch.setattr("connector.spanner.decoding.decoder.FEW", 0 if fast else 1 << 30)
    decode = decoder(GOOGLESQL if dialect == "googlesql" else POSTGRESQL, IMMUTABLE, rules)()
    decode([field(1, METADATA[dialect])], 0)
    items = decode([field(2, row.SerializeToString()) for row in rows(dialect, some)], 0)
    assert all(isinstance(item, Changes if fast else DataChangeRecord) for item in items)
    found: list[DataChangeRecord] = []
    for item in items:
        assert isinstance(item, Changes | DataChangeRecord)
        found += item.records() if isinstance(item, Changes) else [item]
    return found


both = pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
either = pytest.mark.parametrize("fast", [True, False], ids=["columns", "rows"])


def digest(type_json: str, of: str) -> str:
    return str(orjson.loads(Digester(type_json, SALT.encode()).digest(of.encode())))


@both
@either
def test_keys_new_and_old_values_are_without_what_is_excluded_and_hashed(
    dialect: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [change(), change(table="Singers"), change(new='{"Email":null}', columns=COLUMNS[:2])]
    users, singers, partly = decoded(dialect, some, RULES, monkeypatch, fast=fast)
    assert "planted-secret" not in repr((users, singers, partly))
    assert "planted-email" not in repr(users)
    assert "4711" not in repr(users)
    assert [(one.name, one.type) for one in users.column_types] == [
        ("Id", STRING_TYPE), ("Email", STRING_TYPE), ("Name", STRING)
    ]  # fmt: skip
    after = {"Email": digest(STRING, '"planted-email"'), "Name": "kept as it is"}
    for mod, (new, old) in zip(users.mods, [(after, {}), ({}, after)], strict=True):
        assert orjson.loads(mod.keys) == {"Id": digest(INT64, '"4711"')}
        assert (orjson.loads(mod.new_values), orjson.loads(mod.old_values)) == (new, old)
    assert orjson.loads(singers.mods[0].keys) == {"Id": "4711"}
    assert orjson.loads(singers.mods[0].new_values)["Email"] == "planted-email"
    assert "Secret" not in singers.mods[0].new_values
    assert orjson.loads(partly.mods[0].new_values) == {"Email": None}


@both
@either
def test_without_a_rule_that_may_match_records_stay_as_they_are(
    dialect: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ColumnRules(("Singers.Secret",))
    with_rules, without = (decoded(dialect, [change()], one, monkeypatch, fast=fast) for one in (rules, None))
    assert with_rules == without


@both
def test_both_decoders_give_the_same_records(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [change(), change(table="Singers"), change(new="{}")]
    one, other = (decoded(dialect, some, RULES, monkeypatch, fast=fast) for fast in (True, False))
    assert [replace(record, size=0) for record in one] == [replace(record, size=0) for record in other]
    assert all(record.size > 0 for record in (*one, *other))


@both
@either
@pytest.mark.parametrize("columns", [COLUMNS[:2], []], ids=["not listed", "no list"])
def test_a_column_that_the_record_does_not_list_is_an_error_and_is_never_passed_on(
    dialect: str, fast: bool, columns: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownRecordError, match=r"table Users|lists no columns") as raised:
        decoded(dialect, [change(columns=columns)], RULES, monkeypatch, fast=fast)
    assert "planted" not in str(raised.value)


@both
@either
def test_an_excluded_column_of_a_key_stops_the_stream(
    dialect: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"Users\.Id, a column of the key"):
        decoded(dialect, [change()], ColumnRules(("*.Id",)), monkeypatch, fast=fast)
