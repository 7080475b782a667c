"""``python -m spark_sink.self_test``, which ``spanner-cdc self-test`` runs: the connector imports no sink."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from connector import log
from connector.config.omni import NAME
from connector.process import EMULATOR_HOST
from spark_sink.own_command import exit_code_of, print_line
from spark_sink.self_test.commands import PROGRAM
from spark_sink.self_test.options import MODES, Names, Options
from spark_sink.self_test.run import SelfTest

_log = log.Log("spark_sink.self_test")


def main(arguments: Sequence[str], program: Sequence[str] = PROGRAM) -> int:
    """Runs a self-test; returns the exit code.

    Args:
        arguments: of the command line.
        program: runs ``spanner-cdc``.
    """
    given = vars(_parser().parse_args(arguments))
    if given["edition"] == "omni":
        given |= {"emulator_host": None, "project": given["project"] or NAME, "instance": given["instance"] or NAME}
    given["tls"] = _tls(given)
    as_json, verbose, style = given.pop("json"), given.pop("verbose"), given.pop("log_format")
    log.configure(json=style == "json", verbose=verbose)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options, names = Options(**given), Names()
    say = _log.info if style == "json" else _say
    for line in options.announced(names):
        say(line)

    def work() -> int:
        errors: list[Exception] = []
        report, code = SelfTest(options, names, say, program).run(errors.append)
        if as_json:
            print_line(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2).decode())
        elif report.checks or report.left_over:
            print_line(report.to_text())
        if report.error:
            shown = errors[0] if verbose and errors else None
            log.complain("spanner-cdc", report.error, action="command_failed", error=shown, exit_code=code)
        return code

    return exit_code_of(work, verbose=verbose)


def _tls(given: dict[str, Any]) -> dict[str, str] | None:
    """The option ``tls`` of a configuration."""
    files = {name: path for name in ("ca", "certificate", "key") if (path := given.pop(f"tls_{name}"))}
    return files if files or given["tls"] else None


def _say(line: str) -> None:
    with suppress(OSError):  # a stderr that nobody reads must not end what deletes
        sys.stderr.write(f"self-test: {line}\n")
        sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spanner-cdc self-test")
    parser.add_argument("--edition", choices=["cloud", "omni"], default="cloud")
    parser.add_argument("--tls", action="store_true")
    of_spanner = ("tls-ca", "tls-certificate", "tls-key", "token-file", "project", "instance", "database")
    of_sinks = ("dataset", "bigquery-project", "bucket")
    endpoints = ("endpoint", "emulator-host", "bigquery-endpoint", "bigquery-grpc-endpoint")
    for name in (*of_spanner, *of_sinks, *endpoints):
        parser.add_argument(f"--{name}")
    parser.set_defaults(emulator_host=os.environ.get(EMULATOR_HOST))
    parser.add_argument("--modes", type=lambda text: tuple(text.split(",")), default=MODES)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--without-spark", dest="with_spark", action="store_false")
    parser.add_argument("--seed", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
