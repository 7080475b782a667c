"""Options of Spark sources that there are not, are reported with those that were meant."""

import pytest

from spark_sink.sources.option_names import unknown

KNOWN = ("spool", "maxRowsPerTrigger", "changeStream")


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        (["SPOOL", "maxrowspertrigger"], []),
        (["spol"], ["unknown option spol; did you mean spool? (known: spool, maxRowsPerTrigger, changeStream)"]),
        (
            ["maxRowsPerTriger", "zzz", "change_stream"],
            [
                (
                    "unknown option change_stream, maxRowsPerTriger, zzz; did you mean changeStream, maxRowsPerTrigger?"
                    " (known: spool, maxRowsPerTrigger, changeStream)"
                )
            ],
        ),
    ],
)
def test_unknown_options_come_with_those_that_were_meant(given: list[str], errors: list[str]) -> None:
    assert unknown(given, KNOWN) == errors
