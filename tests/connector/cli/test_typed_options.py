"""An error of a command without a configuration file names the options that were typed."""

import pytest

from connector.cli.typed_options import as_typed


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("source.start: no timestamp", "--start: no timestamp"),
        ("source.database_role: empty; source.end: none", "--database-role: empty; --end: none"),
        ("set source.tables.include", "set --table"),
        ("source.tls.ca: no such file, source.tls: none", "--tls-ca: no such file, source.tls: none"),
        ("envelope.format: no", "--envelope: no"),
        ("HOST, --end or source.end: no", "HOST or --end: no"),
        ("source.placements: not an option of it", "source.placements: not an option of it"),
        ("https://example.com/source.start/here", "https://example.com/source.start/here"),
    ],
)
def test_options_have_the_names_of_the_command_line_where_it_has_them(line: str, typed: str) -> None:
    assert as_typed(line, ["--start", "--end", "--database-role", "--table", "--tls-ca", "--envelope"]) == typed


def test_a_command_with_a_configuration_keeps_its_names() -> None:
    assert as_typed("source.start: no timestamp", []) == "source.start: no timestamp"
