"""Commands and options of ``spanner-cdc`` that the pages name exist."""

import re
import textwrap
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from connector.cli import cli
from connector.cli.examples import EXAMPLES, epilog_of
from tests.docs.command_lines import unknown
from tests.docs.pages import ROOT, Block, blocks, pages

START = re.compile(r"(?:^|[\s/])spanner-cdc +(?=[a-z-])(.*)")
COMMENT = re.compile(r"\s#\s.*|\s[|>&;].*")


def lines_of(block: Block) -> Iterator[str]:
    """Yields what follows ``spanner-cdc`` in the block's command lines, with lines that go on joined."""
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        match = START.match(re.sub(r"^\s*\$ ", "", line.strip()))
        if match:
            yield COMMENT.sub("", match[1])


def command_lines() -> list[tuple[str, str]]:
    """Returns the place and text of each command line, in blocks and in inline code."""
    found = [(block.place, line) for block in blocks("", "sh", "bash", "console") for line in lines_of(block)]
    for page in pages():
        written = re.findall(r"`spanner-cdc ([a-z-][^`]*)`", page.read_text())
        found += [(str(page.relative_to(ROOT)), " ".join(code.split())) for code in written]
    return found


def test_commands_and_options_of_the_pages_exist() -> None:
    assert [(place, line, wrong) for place, line in command_lines() if (wrong := unknown(line))] == []


@pytest.mark.parametrize("line", ["no-such-command", "tail --no-such-option x"])
def test_an_unknown_command_and_an_unknown_option_are_found(line: str) -> None:
    assert unknown(line)


def test_the_pages_have_command_lines() -> None:
    assert len(command_lines()) > 10


def test_every_command_has_examples_and_they_exist() -> None:
    assert set(cli.list_commands(click.Context(cli))) <= set(EXAMPLES)
    assert [line for lines in EXAMPLES.values() for line in lines if unknown(line)] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_of_a_command_ends_with_its_examples_and_fits_80_columns(name: str) -> None:
    shown = CliRunner().invoke(cli, [*name.split(), "--help"], terminal_width=80).output.rstrip()
    assert shown.endswith(textwrap.indent(epilog_of(name).removeprefix("\b\n"), "  "))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("typed", "meant"), [("statis", "status"), ("dead-letters lsit", "list"), ("tail --projct p", "--project")]
)
def test_the_error_of_a_mistyped_command_or_option_names_a_similar_one(typed: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in CliRunner().invoke(cli, typed.split()).output
