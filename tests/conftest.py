"""Settings of all tests: those that are marked slow or long are skipped unless an option asks for them."""

import os
import signal
import sys
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from connector import log
from tests import without_pandas
from tests.java import java_options, spark_home
from tests.long_tests import add_options, skip_unless_wanted
from tests.property.effort import share_of

without_pandas.hide()
if find_spec("pyspark"):  # the purest tests run where there is none
    os.environ.setdefault("SPARK_HOME", spark_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())

from tests.cloud_storage import bucket as bucket  # noqa: E402
from tests.cloud_storage import cloud_storage as cloud_storage  # noqa: E402
from tests.cloud_storage import gcs_proxy as gcs_proxy  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and so would the processes that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "shared machine", deadline=None, max_examples=share_of(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(trylast=True)  # first cases are counted among those that -k has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_unless_wanted(config, items)


@pytest.fixture(autouse=True)
def _paths_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs in the tests' process names its paths in messages, and no later one's."""
    monkeypatch.setattr(log, "_named", [str])


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pandas can be imported, here and in the processes that the test starts."""
    monkeypatch.setattr(sys, "path", without_pandas.shown(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(without_pandas.shown(os.environ["PYTHONPATH"].split(os.pathsep))))
