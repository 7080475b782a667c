"""Which records become events."""

from connector.filters import RecordFilter


def test_without_patterns_every_table_is_kept() -> None:
    assert RecordFilter().keeps("Anything")


def test_include_and_exclude_are_shell_patterns() -> None:
    chosen = RecordFilter(include=["Sing*", "shop.*"], exclude=["*_tmp"])
    assert [name for name in ("Singers", "Sing_tmp", "shop.Orders", "Albums") if chosen.keeps(name)] == [
        "Singers",
        "shop.Orders",
    ]


def test_patterns_that_fit_no_table_are_told() -> None:
    assert RecordFilter(include=["Singers", "Albms"], exclude=["x*"]).unmatched(["Singers", "Albums"]) == [
        "Albms",
        "x*",
    ]
