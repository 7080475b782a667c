"""Stand-ins for a server of Spanner Omni: an emulator with its names, which the self-test does not know as one."""

from collections.abc import Iterator

import pytest

from emulator import Emulator, connect
from spark_sink.self_test.options import Options
from spark_sink.self_test.probes import change_stream
from tests.integration.servers import emulator as emulator


@pytest.fixture
def default_instance(emulator: Emulator) -> Iterator[str]:
    """The address of a server that has the one instance of Omni."""
    client = connect(emulator.host, "default")
    instance = client.instance("default", f"{client.project_name}/instanceConfigs/emulator-config", node_count=1)
    instance.create().result(timeout=60)
    yield emulator.host
    assert list(instance.list_databases()) == []
    instance.delete()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is known to be an emulator only here: it keeps no tags, and some values end it."""
    monkeypatch.setattr(change_stream, "WATCHED", 0.5)
    monkeypatch.setattr(Options, "is_emulated", property(lambda _: True))
