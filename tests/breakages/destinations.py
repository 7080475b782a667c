"""Breakages of Spark and of destinations that are databases."""

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from emulator import SampleDatabase, find_or_start
from emulator.bigquery.double import BigQueryDouble
from tests.breakages.breakage import Breakage, Scene
from tests.breakages.service import started
from tests.breakages.source import delivering, reading
from tests.faults.link import Link, linked
from tests.soak.process_tree import is_jvm, kill, process_tree

_DATASET = "replica"


@contextmanager
def _bigquery(
    folder: Path, *, breaks: Callable[[BigQueryDouble], object], source: Mapping[str, object] = MappingProxyType({})
) -> Iterator[Scene]:
    with BigQueryDouble.started() as double:
        sink = {
            "type": "bigquery",
            "dataset": _DATASET,
            "project": double.project,
            "endpoint": double.endpoint,
            "grpc_endpoint": double.grpc_endpoint,
            "location": "US",
        }
        with delivering(folder, lambda: breaks(double), sink=sink, source=source) as scene:
            yield scene


@contextmanager
def _database(folder: Path, *, breaks: Callable[[SampleDatabase, Link], object]) -> Iterator[Scene]:
    with find_or_start() as emulator, linked(emulator.host) as link:
        replica = SampleDatabase.create(emulator.host)
        replica.run_ddl(f"DROP CHANGE STREAM {replica.change_stream}")  # on which an emulator may crash
        sink = {
            "type": "spanner",
            "project": replica.project,
            "instance": replica.instance,
            "database": replica.database_id,
            "emulator_host": link.host,
            "dead_letters": str(folder / "dead"),
        }
        with delivering(folder, lambda: breaks(replica, link), sink=sink) as scene:
            yield scene


@contextmanager
def _killing(process: "subprocess.Popen[bytes]") -> Iterator[Callable[[], None]]:
    """Yields what begins to kill each JVM below a process as soon as it is there, until the context ends."""
    closed = threading.Event()

    def keep_killing() -> None:
        while not closed.wait(0.5):
            kill(list(filter(is_jvm, process_tree(process.pid))))

    killing = threading.Thread(target=keep_killing, name="kills")
    try:
        yield killing.start
    finally:
        closed.set()
        if killing.is_alive():
            killing.join()


@contextmanager
def _killed_jvm(folder: Path) -> Iterator[Scene]:
    with delivering(folder) as scene, _killing(scene.service.process) as breaks:
        yield Scene(scene.service, breaks)


@contextmanager
def _killed_jvm_of_a_sink_alone(folder: Path) -> Iterator[Scene]:
    """The service is the daemon: the sink is a process of its own."""
    with (
        reading(folder) as scene,
        started("run --sink-only", scene.service.config) as sink,
        _killing(sink.process) as breaks,
    ):
        sink.until(scene.service.has_delivered, "it delivers")
        yield Scene(scene.service, breaks)


BREAKAGES = (
    Breakage(
        "BigQuery refuses",
        "Access to the dataset is denied: 403.",
        "permission denied",
        partial(_bigquery, breaks=lambda double: double.deny(_DATASET)),
        code=1,
    ),
    Breakage(
        "BigQuery answers its writers with errors",
        "Every row that a task of Spark appends ends with UNAVAILABLE.",
        "cannot write table",
        partial(_bigquery, breaks=lambda double: double.fail_next("UNAVAILABLE", 10**6)),
        named=frozenset({"sink_failing"}),
    ),
    Breakage(
        "The destination's database is dropped",
        "The database that the Spanner sink writes is dropped.",
        "database not found",
        partial(_database, breaks=lambda replica, _: replica.drop()),
        code=1,
    ),
    Breakage(
        "A table is stopped",
        "A table of the Spanner sink's database is dropped.",
        "the sink has stopped tables: Albums",
        partial(_database, breaks=lambda replica, _: replica.run_ddl("DROP TABLE Albums")),
        named=frozenset({"tables_stopped"}),
    ),
    Breakage(
        "The destination's database does not answer",
        "Every connection of the Spanner sink is reset, and none is accepted any more.",
        "cannot write",
        partial(_database, breaks=lambda _, link: link.down()),
        named=frozenset({"sink_failing"}),
    ),
    Breakage(
        "Spark's JVM is killed again and again",
        "Each JVM is killed as soon as it is there.",
        "JAVA_GATEWAY_EXITED",
        _killed_jvm,
        named=frozenset({"sink_failing"}),
    ),
    Breakage(
        "A sink that runs alone is killed again and again",
        "The sink is `run --sink-only`, beside the daemon: each of its JVMs is killed as soon as it is there.",
        "JAVA_GATEWAY_EXITED",
        _killed_jvm_of_a_sink_alone,
        named=frozenset({"sink_failing"}),
    ),
)
