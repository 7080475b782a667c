"""The handshake with Conduit: who is refused."""

import pytest

from connector.conduit.handshake import COOKIE, check
from connector.errors import ConfigurationError
from tests.integration.conduit.plugins import CONDUIT


def test_conduit_is_accepted() -> None:
    check(CONDUIT)


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "serve is started by Conduit"),
        ({**CONDUIT, COOKIE: "x"}, "serve is started by Conduit"),
        ({**CONDUIT, "PLUGIN_PROTOCOL_VERSIONS": "1"}, "speaks version 1 of the connector protocol: 2 is needed"),
        ({**CONDUIT, "PLUGIN_CLIENT_CERT": "x"}, "wants an encrypted connection"),
    ],
)
def test_others_are_refused_in_one_line(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        check(environment)
