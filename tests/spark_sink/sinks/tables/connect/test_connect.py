"""Spark Connect, whose sessions have no JVM of their own."""

from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from connector.errors import ConfigurationError
from spark_sink.sinks.tables.formats.session import session_options


def test_an_option_that_a_server_does_not_allow_is_named_in_one_line() -> None:
    session = Mock()
    session.conf.get.return_value = None
    session.conf.set.side_effect = AnalysisException("[CONFIG_NOT_AVAILABLE] Configuration a.b is not available.")
    with (
        pytest.raises(ConfigurationError, match=r"does not let a\.b be set: \[CONFIG_NOT_AVAILABLE\]"),
        session_options(session, {"a.b": "c"}),
    ):
        raise AssertionError
