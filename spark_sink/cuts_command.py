"""``spanner-cdc cuts CONFIG``, in a process of its own: the connector imports no sink."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from connector.config.loading import load
from connector.core.timestamps import format_rfc3339
from spark_sink.own_command import configure_log, exit_code_of, print_line
from spark_sink.sinks.shared.published_cut import PublishedCut
from spark_sink.sinks.shared.sink_type import spark_sink_type


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    given = _parser().parse_args(arguments)
    configure_log(given)

    def listed() -> int:
        config = load(given.config)
        found = spark_sink_type(config).published_cuts(config, config.sink)
        print_line(_json(found) if given.json else _text(found))
        return 0

    return exit_code_of(listed, verbose=given.verbose)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spanner-cdc cuts")
    parser.add_argument("config", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--verbose", action="store_true")
    return parser


def _json(cuts: Sequence[PublishedCut]) -> str:
    nodes = [cut.model_dump(mode="json", exclude={"version"}) for cut in cuts]
    return orjson.dumps(nodes, option=orjson.OPT_INDENT_2).decode()


def _text(cuts: Sequence[PublishedCut]) -> str:
    return "\n".join(map(_line, cuts)) or "no cut is published yet"


def _line(cut: PublishedCut) -> str:
    """A cut in a line: its timestamp, its epoch, and the tables that are not complete with the reason."""
    complete = len(cut.tables) - len(cut.incomplete)
    lacking = "".join(f"; not {table}: {' '.join(why.split())}" for table, why in sorted(cut.incomplete.items()))
    tables = "table" if complete == 1 else "tables"
    return f"{format_rfc3339(cut.timestamp)}  epoch {cut.epoch}  {complete} {tables} complete{lacking}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
