"""Catalogs of Iceberg that lack a namespace, refuse credentials, or do not answer."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.errors import FAILED_PERMANENTLY, TRANSIENT
from spark_sink.failures import SPARK_ERRORS, Meaning, line_and_code, meaning_of
from spark_sink.run import _final_if_permanent
from spark_sink.sinks.tables.formats.databases import missing_database
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from tests.spark_sink.sinks.tables.catalogs.namespaces import WIDE, rows, use_two_namespaces
from tests.spark_sink.sinks.tables.catalogs.server import Gate, nessie_catalog, new_java, rest_catalog
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs
from tests.spark_sink.spools import SpoolMaker

pytestmark = pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse"
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as found:
        yield found


def configure(lake: SparkSession, name: str, options: dict[str, str]) -> None:
    lake.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for option, value in options.items():
        lake.conf.set(f"spark.sql.catalog.{name}.{option}", value)


def of_rest(address: str) -> dict[str, str]:
    return {"type": "rest", "uri": address, "rest.client.max-retries": "1"}


@pytest.mark.long
def test_a_database_that_a_catalog_lacks_is_named_with_the_statement_that_creates_it(
    lake: SparkSession, gate: Gate
) -> None:
    configure(lake, "checked", of_rest(gate.address))
    assert missing_database(lake, "checked.films", "iceberg") == [
        "sink.database: there is no database checked.films: create it (CREATE NAMESPACE checked.films)"
    ]
    lake.sql("CREATE NAMESPACE checked.films")
    assert missing_database(lake, "checked.films", "iceberg") == []
    (why,) = missing_database(lake, "nowhere.films", "iceberg")
    assert why.startswith("sink.database: there is no catalog nowhere: configure it in spark.config")


@pytest.mark.parametrize("database", ["default", "spark_catalog.default", "not_there"])
def test_a_database_of_sparks_own_catalog_is_refused_where_that_keeps_no_tables_of_the_format(
    lake: SparkSession, database: str
) -> None:
    where = f"sink.database: {database} is in Spark's own catalog, which"
    (why,) = missing_database(lake, database, "iceberg")
    assert why.startswith(f"{where} has no tables of Iceberg: configure a catalog in spark.config")
    (why,) = missing_database(lake, database, "delta")
    assert why.startswith(f"{where} is in memory: configure a metastore in spark.config")


@pytest.mark.long
def test_a_database_is_not_refused_where_sparks_own_catalog_is_of_another_library(lake: SparkSession) -> None:
    session, name = lake.newSession(), "spark.sql.catalog.spark_catalog"
    session.conf.set(name, "org.apache.iceberg.spark.SparkSessionCatalog")
    session.conf.set(f"{name}.type", "hadoop")
    session.conf.set(f"{name}.warehouse", "/tmp/none")
    assert missing_database(session, "default", "iceberg") == []


@pytest.mark.long
def test_a_catalog_that_refuses_the_credentials_is_final_and_one_that_is_silent_is_tried_again(
    lake: SparkSession, gate: Gate, tmp_path: Path
) -> None:
    configure(lake, "gated", of_rest(gate.address))
    lake.sql("CREATE NAMESPACE gated.plays")
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1], WIDE, Name="n", Age="1"))

    def merge(catalog: str = "gated") -> None:
        spark_sink.merge_into(epochs(lake, spool, 1, 1), format="iceberg", database=f"{catalog}.plays")

    def refused(status: int, kind: str) -> tuple[str, int]:
        gate.refusal = status, kind
        try:
            with pytest.raises(Exception) as raised, _final_if_permanent():
                merge()
        finally:
            gate.refusal = None
        return line_and_code(raised.value)

    line, code = refused(401, "NotAuthorizedException")
    assert code == FAILED_PERMANENTLY
    assert line.startswith("the catalog does not accept the credentials, which may have expired: NotAuthorized")
    assert refused(403, "ForbiddenException")[1] == FAILED_PERMANENTLY
    line, code = refused(503, "ServiceUnavailableException")
    assert (code, line.partition(":")[0]) == (TRANSIENT, "the catalog does not answer")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        configure(lake, "down", of_rest(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(SPARK_ERRORS) as raised:
            merge("down")
    assert meaning_of(raised.value) is Meaning.TRANSIENT
    assert "Connection refused" in line_and_code(raised.value)[0]
    merge()
    assert rows(lake, "gated.plays.Singers") == [(1, "n", 1)]


@pytest.mark.slow
def test_two_sinks_that_write_one_table_through_a_catalog_that_is_down_for_a_while_lose_and_repeat_nothing(
    lake: SparkSession, gate: Gate, tmp_path: Path
) -> None:
    """It is down until each has failed; then the answers of commits are lost."""
    configure(lake, "shared", of_rest(gate.address))
    lake.sql("CREATE NAMESPACE shared.operas")
    together = Barrier(2, timeout=300)

    def write(writer: int) -> None:
        session, spool = lake.newSession(), SpoolMaker(tmp_path / f"spool {writer}")
        configure(session, "shared", of_rest(gate.address))
        spark_sink.register(session)

        def merge(epoch: int) -> None:
            events = epochs(session, spool, 1, epoch)
            spark_sink.merge_into(events, format="iceberg", database="shared.operas", mode="append")

        for epoch in range(1, 4):
            spool.seal(change(epoch, [10 * writer + epoch], WIDE, Name=f"{writer}", Age="1"))
            if epoch == 2:
                together.wait()
                gate.refusal = 503, "ServiceUnavailableException"
                with pytest.raises(SPARK_ERRORS) as raised:
                    merge(epoch)
                assert meaning_of(raised.value) is Meaning.TRANSIENT
                together.wait()
                gate.refusal = None
            if epoch == 3:
                if together.wait() == 0:
                    gate.lost = 2
                together.wait()
                with suppress(*SPARK_ERRORS):
                    merge(epoch)
                together.wait()  # else the answer that one is to lose is lost to the other's next attempt
            merge(epoch)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (1, 2)))
    assert gate.lost == 0
    assert rows(lake, "shared.operas.Singers") == [
        (10 * writer + epoch, f"{writer}", 1) for writer in (1, 2) for epoch in range(1, 4)
    ]


@pytest.mark.long
def test_a_jdbc_catalog_has_tables_of_two_namespaces_that_are_widened_merged_and_repaired(
    lake: SparkSession, tmp_path: Path
) -> None:
    options = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": str(tmp_path / "warehouse")}
    configure(lake, "sqlite", {**options, "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"})
    use_two_namespaces(lake, "iceberg", "sqlite", tmp_path)


@pytest.mark.slow
def test_a_catalog_of_nessie_has_such_tables_and_its_faults_are_named(lake: SparkSession, tmp_path: Path) -> None:
    if (java := new_java()) is None:
        pytest.skip("Nessie needs a Java of version 21 or newer")
    with nessie_catalog(tmp_path, java) as gate:
        options = {"type": "nessie", "uri": f"{gate.address}/api/v2", "warehouse": str(tmp_path / "warehouse")}
        configure(lake, "nessie", options)
        use_two_namespaces(lake, "iceberg", "nessie", tmp_path)
        lake.sql("CREATE NAMESPACE nessie.plays")
        spool = SpoolMaker(tmp_path / "faults")
        spool.seal(change(1, [9], WIDE, Name="n", Age="1"))
        for status, kind, meaning, line in (
            (503, "SERVICE_UNAVAILABLE", Meaning.TRANSIENT, "the catalog does not answer: NessieUnavailableException"),
            (401, "UNAUTHORIZED", Meaning.PERMANENT, "the catalog does not accept the credentials"),
            (403, "FORBIDDEN", Meaning.PERMANENT, "the catalog forbids it"),
        ):
            gate.refusal = status, kind
            with pytest.raises(SPARK_ERRORS) as raised:
                spark_sink.merge_into(epochs(lake, spool, 1, 1), format="iceberg", database="nessie.operas")
            assert meaning_of(raised.value) is meaning
            assert line_and_code(raised.value)[0].startswith(line)
        gate.refusal = None
        spark_sink.merge_into(epochs(lake, spool, 1, 1), format="iceberg", database="nessie.plays", mode="append")
        assert rows(lake, "nessie.plays.Singers") == [(9, "n", 1)]
