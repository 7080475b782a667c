"""Hints name the paths that were given."""

import pytest

from connector.core.health.hints import with_paths


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("`spanner-cdc resume CONFIG` continues", "`spanner-cdc resume my.yaml` continues"),
        ("run `spanner-cdc spool PATH --forget x`.", "run `spanner-cdc spool '/a b' --forget x`."),
        ("CONFIG and PATH, `other CONFIG`", "CONFIG and PATH, `other CONFIG`"),
    ],
)
def test_commands_have_the_paths_that_were_given(text: str, named: str) -> None:
    assert with_paths(text, config="my.yaml", spool="/a b") == named


def test_a_path_that_was_not_given_keeps_its_place() -> None:
    assert with_paths("`spanner-cdc resume CONFIG`") == "`spanner-cdc resume CONFIG`"
