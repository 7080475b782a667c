"""Breakages of Spark and of destinations that are databases."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator import SampleDatabase, find_or_start
from emulator.bigquery.double import BigQueryDouble
from tests.breakages.breakage import Breakage, Scene
from tests.breakages.service import Service
from tests.breakages.source import reading
from tests.soak.process_tree import is_jvm, kill, process_tree

_DATASET = "replica"


@contextmanager
def _denied_dataset(folder: Path) -> Iterator[Scene]:
    with BigQueryDouble.started() as double:
        sink = {
            "type": "bigquery",
            "dataset": _DATASET,
            "project": double.project,
            "endpoint": double.endpoint,
            "grpc_endpoint": double.grpc_endpoint,
            "location": "US",
        }
        with reading(
            folder,
            command="run",
            breaks=lambda *_: double.deny(_DATASET),
            ready=Service.has_delivered,
            sections={"sink": sink},
        ) as scene:
            yield scene


@contextmanager
def _dropped_database(folder: Path) -> Iterator[Scene]:
    with find_or_start() as emulator:
        replica = SampleDatabase.create(emulator.host)
        replica.run_ddl(f"DROP CHANGE STREAM {replica.change_stream}")  # on which an emulator may crash
        sink = {
            "type": "spanner",
            "project": replica.project,
            "instance": replica.instance,
            "database": replica.database_id,
            "emulator_host": emulator.host,
            "dead_letters": str(folder / "dead"),
        }
        with reading(
            folder,
            command="run",
            breaks=lambda *_: replica.drop(),
            ready=Service.has_delivered,
            sections={"sink": sink},
        ) as scene:
            yield scene


@contextmanager
def _killed_jvm(folder: Path) -> Iterator[Scene]:
    """Each JVM is killed as soon as it is there, until the scene is closed."""
    closed = threading.Event()

    def keep_killing(service: Service) -> None:
        while not closed.wait(0.5):
            kill(list(filter(is_jvm, process_tree(service.process.pid))))

    with reading(folder, command="run", ready=Service.has_delivered) as scene:
        killing = threading.Thread(target=keep_killing, args=(scene.service,), name="kills")
        try:
            yield Scene(scene.service, killing.start)
        finally:
            closed.set()
            if killing.is_alive():
                killing.join()


BREAKAGES = (
    Breakage(
        "BigQuery refuses",
        "Access to the dataset is denied: 403.",
        "permission denied",
        _denied_dataset,
        code=1,
    ),
    Breakage(
        "The destination's database is dropped",
        "The database that the Spanner sink writes is dropped.",
        "database not found",
        _dropped_database,
        code=1,
    ),
    Breakage(
        "Spark's JVM is killed again and again",
        "Each JVM is killed as soon as it is there.",
        "JAVA_GATEWAY_EXITED",
        _killed_jvm,
        named=frozenset({"sink_failing"}),
    ),
)
