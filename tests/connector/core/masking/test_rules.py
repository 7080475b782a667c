"""Rules find their columns by pattern, refuse what cannot be, and are noted without their salts."""

import pytest

from connector.core.masking.rules import STRING_TYPE, ColumnRules, HashRule
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError

SALT, OTHER = "one salt of the tests", "another salt of the tests"
INT64 = '{"code":"INT64"}'


def table(name: str, *columns: str) -> TableSchema:
    """A table of INT64 columns, whose first one is the key."""
    return TableSchema.of(
        name, [ColumnType(column, INT64, number == 0, number + 1) for number, column in enumerate(columns)]
    )


def names(schema: TableSchema) -> dict[str, str]:
    return {column.name: column.type for column in schema.columns}


USERS = table("Users", "Id", "Email", "Name")


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("Users.Email", {"Id", "Name"}),
        ("users.EMAIL", {"Id", "Name"}),
        ("*.Email", {"Id", "Name"}),
        ("Users.[EN]*", {"Id"}),
        ("User?.Email", {"Id", "Name"}),
        ("U*.N?me", {"Id", "Email"}),
        ("*mail", {"Id", "Name"}),
        ("Users.Ema", {"Id", "Email", "Name"}),
        ("Email", {"Id", "Email", "Name"}),
        ("Singers.*", {"Id", "Email", "Name"}),
        ("s.Users.Email", {"Id", "Email", "Name"}),
    ],
)
def test_a_pattern_excludes_what_it_matches_in_any_case(pattern: str, left: set[str]) -> None:
    assert set(names(ColumnRules((pattern,)).schema(USERS))) == left


def test_a_pattern_of_a_named_schema_matches_the_whole_name() -> None:
    mine = table("s.Users", "Id", "Email")
    assert set(names(ColumnRules(("s.Users.Email",)).schema(mine))) == {"Id"}
    assert set(names(ColumnRules(("*.Email",)).schema(mine))) == {"Id"}


def test_a_hashed_column_is_a_string_and_the_schema_key_follows() -> None:
    rules = ColumnRules(hash=(HashRule("Users.Email", SALT), HashRule("*.Id", SALT)))
    found = rules.schema(USERS)
    assert names(found) == {"Id": STRING_TYPE, "Email": STRING_TYPE, "Name": INT64}
    assert found.primary_keys == ("Id",)
    assert found.key != USERS.key
    assert rules.schema(table("Singers", "SingerId")) == table("Singers", "SingerId")
    assert rules.hashed_key("Users", USERS.primary_keys) == "Id"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (ColumnRules(("Users.*",)), ["source.columns.exclude", "'Users.*'", "Users.Id", "a column of the key"]),
        (ColumnRules(("*.Email",), (HashRule("Users.*l", SALT),)), ["Users.Email", "'*.Email'", "'Users.*l'"]),
        (ColumnRules((), (HashRule("*.Email", SALT), HashRule("Users.*", OTHER))), ["different salts", "Users.Email"]),
    ],
)
def test_rules_that_contradict_a_table_are_refused_by_name_and_never_applied(
    rules: ColumnRules, words: list[str]
) -> None:
    (error,) = rules.errors([USERS, table("Singers", "SingerId")])
    assert all(word in error for word in words)
    assert SALT not in error
    with pytest.raises(ConfigurationError):
        rules.mask("Users", USERS.columns)


def test_patterns_that_match_nothing_are_named_with_their_option() -> None:
    rules = ColumnRules(("Users.Emial", "Users.Email"), (HashRule("Usres.Name", SALT),))
    assert rules.unmatched([USERS]) == ["source.columns.exclude: 'Users.Emial'", "source.columns.hash: 'Usres.Name'"]


def test_a_fingerprint_says_what_has_changed_and_holds_no_salt() -> None:
    noted = ColumnRules(("A.b", "A.a"), (HashRule("A.c", SALT),)).fingerprint
    assert SALT not in repr(noted)
    assert noted.changes(ColumnRules(("A.a", "A.b"), (HashRule("A.c", SALT),)).fingerprint) == ""
    changed = ColumnRules(("A.a", "A.d"), (HashRule("A.c", OTHER), HashRule("A.e", OTHER))).fingerprint
    assert noted.changes(changed) == (
        "exclude no longer has A.b, exclude has A.d now, hash has A.e now, the salt of A.c is another"
    )
    assert changed.changes(ColumnRules().fingerprint).startswith("exclude no longer has A.a")
    assert SALT not in repr(ColumnRules((), (HashRule("A.c", SALT),)))
