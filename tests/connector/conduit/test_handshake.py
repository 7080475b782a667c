"""The handshake with Conduit: who is refused."""

import pytest

from connector.conduit.handshake import COOKIE, Utilities, check_connection, check_started_by_conduit, utilities
from connector.errors import ConfigurationError
from tests.integration.conduit.plugins import CONDUIT


def test_conduit_is_accepted() -> None:
    check_started_by_conduit(CONDUIT)
    check_connection(CONDUIT)


@pytest.mark.parametrize("environment", [{}, {**CONDUIT, COOKIE: "x"}])
def test_who_is_not_conduit_is_refused_in_one_line(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="serve is started by Conduit"):
        check_started_by_conduit(environment)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"PLUGIN_PROTOCOL_VERSIONS": "1"}, "speaks version 1 of the connector protocol: 2 is needed"),
        ({"PLUGIN_CLIENT_CERT": "x"}, "wants an encrypted connection"),
    ],
)
def test_a_conduit_that_wants_another_connection_is_refused_in_one_line(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        check_connection({**CONDUIT, **given})


def test_conduit_says_where_its_services_are_or_has_none() -> None:
    given = {
        "CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET": "[::]:41253",
        "CONDUIT_CONNECTOR_TOKEN": "secret",
        "CONDUIT_CONNECTOR_ID": "pipeline:source",
    }
    assert utilities(CONDUIT | given) == Utilities("[::]:41253", "secret", "pipeline:source")
    assert utilities(CONDUIT) is None
    assert "secret" not in repr(utilities(CONDUIT | given))
