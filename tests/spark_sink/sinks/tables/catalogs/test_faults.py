"""Errors of catalogs: their line, and whether another attempt may succeed."""

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from spark_sink.errors import clear_line, is_of_statement, is_permanent
from tests.spark_sink.sinks.tables.catalogs.hive import HIVE

CALL = "An error occurred while calling o49.sql.\n: "
ICEBERG = "org.apache.iceberg.exceptions"
BATCH = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "spark_sink/sinks/tables/merge_into.py", line 7, in _merge
    spark.sql(statement)
py4j.protocol.Py4JJavaError: {}
 SQLSTATE: XXKST"""
NESSIE = "org.projectnessie"
SHADED = "org.apache.iceberg.shaded.org.apache.hc.client5.http.HttpHostConnectException"
JDBC = "org.apache.iceberg.jdbc.UncheckedSQLException: "
SQL = "\n\tat a.B.c(D.java:1)\nCaused by: org.postgresql.util.PSQLException"

FINAL = {
    f"{ICEBERG}.NotAuthorizedException: Not authorized: token has expired": (
        "the catalog does not accept the credentials, which may have expired: NotAuthorizedException: Not authorized:"
        " token has expired. Renew them in spark.config (spark.sql.catalog.NAME.token, or .credential)"
    ),
    f"{ICEBERG}.BadRequestException: Malformed request: invalid_client: unknown": (
        "the catalog does not accept the credentials, which may have expired: BadRequestException: Malformed request:"
        " invalid_client: unknown. Renew them in spark.config (spark.sql.catalog.NAME.token, or .credential)"
    ),
    "software.amazon.awssdk.services.glue.model.GlueException: The security token included in the request is expired": (
        "the catalog does not accept the credentials, which may have expired: security token included in the request is"
        " expired. Renew them in spark.config (spark.sql.catalog.NAME.token, or .credential)"
    ),
    f"{ICEBERG}.ForbiddenException: Forbidden: no right CREATE_TABLE": (
        "the catalog forbids it: ForbiddenException: Forbidden: no right CREATE_TABLE. Grant what it names"
    ),
    f"{NESSIE}.client.rest.NessieNotAuthorizedException: Unauthorized (HTTP/401): token has expired": (
        "the catalog does not accept the credentials, which may have expired: NessieNotAuthorizedException:"
        " Unauthorized (HTTP/401): token has expired. Renew them in spark.config"
        " (spark.sql.catalog.NAME.authentication.token)"
    ),
    f"{NESSIE}.error.NessieForbiddenException: Forbidden (HTTP/403): no right to commit": (
        "the catalog forbids it: NessieForbiddenException: Forbidden (HTTP/403): no right to commit. Grant what it"
        " names"
    ),
    f"{JDBC}Failed to connect: jdbc:postgresql://host/db?password=secret{SQL}: FATAL: password authentication failed"
    ' for user "spark"': (
        'the catalog\'s database does not accept the credentials: password authentication failed for user "spark".'
        " Renew them in spark.config (spark.sql.catalog.NAME.jdbc.user and .jdbc.password)"
    ),
    f"{JDBC}Failed to connect: jdbc:postgresql://host/db{SQL}: No suitable driver found for"
    " jdbc:postgresql://host/db?password=secret": (
        "the session lacks the catalog's JDBC driver: No suitable driver found for jdbc:postgresql://host/db. Add its"
        " jar to spark.config (spark.jars.packages)"
    ),
    f'{JDBC}Failed to connect: jdbc:postgresql://host/db{SQL}: FATAL: database "lake" does not exist': (
        'the catalog\'s database does not exist: database "lake" does not exist. Create it, or mend spark.config'
        " (spark.sql.catalog.NAME.uri)"
    ),
    f"{JDBC}Cannot initialize JDBC catalog{SQL}: ERROR: permission denied for schema public": (
        "the catalog's database forbids it: permission denied for schema public. Grant what it names"
    ),
}
AGAIN = {
    f"{ICEBERG}.RESTException: Error occurred while processing GET request\n\tat a.B.c(D.java:1)\nCaused by: {SHADED}:"
    " Connect to http://catalog:8181 failed: Connection refused": (
        "HttpHostConnectException: Connect to http://catalog:8181 failed: Connection refused"
    ),
    f"{NESSIE}.client.http.HttpClientException: Failed to execute GET request\n\tat a.B.c(D.java:1)\nCaused by:"
    " java.net.ConnectException: Connection refused": "ConnectException: Connection refused",
    f"{NESSIE}.error.NessieUnavailableException: Service Unavailable (HTTP/503): later": (
        "NessieUnavailableException: Service Unavailable (HTTP/503): later"
    ),
    f"{ICEBERG}.ServiceUnavailableException: Service unavailable: later": (
        "ServiceUnavailableException: Service unavailable: later"
    ),
    f"{ICEBERG}.CommitStateUnknownException: Service failed: 502": "CommitStateUnknownException: Service failed: 502",
    "org.apache.iceberg.jdbc.UncheckedSQLException: Failed to connect: jdbc:postgresql://host/db?password=secret": (
        "UncheckedSQLException: Failed to connect: jdbc:postgresql://host/db"
    ),
}


def raised(text: str) -> list[Exception]:
    called = f"{CALL}{text}\n\tat a.b.C.d(C.scala:1)"
    return [PySparkException(called), StreamingQueryException(BATCH.format(called))]


@pytest.mark.parametrize("text", FINAL)
def test_credentials_that_a_catalog_refuses_are_final_and_said_in_one_line(text: str) -> None:
    for error in raised(text):
        assert is_permanent(error)
        assert not is_of_statement(error)
        assert clear_line(error) == FINAL[text]


@pytest.mark.parametrize("text", AGAIN)
def test_a_catalog_that_does_not_answer_is_tried_again_and_named_without_a_password(text: str) -> None:
    for error in raised(text):
        assert not is_permanent(error)
        assert not is_of_statement(error)
        assert clear_line(error) == f"the catalog does not answer: {AGAIN[text]}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            (
                "java.lang.RuntimeException: Unable to instantiate"
                " org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClient"
            ),
            "Unable to instantiate org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClient",
        ),
        ("org.apache.thrift.transport.TTransportException: Broken pipe", "TTransportException: Broken pipe"),
    ],
)
def test_a_metastore_that_does_not_answer_stops_no_table_and_is_tried_again(text: str, line: str) -> None:
    error = AnalysisException(HIVE + text)
    assert not is_of_statement(error)
    assert not is_permanent(error)
    assert clear_line(error) == f"the catalog does not answer: {line}"


def test_an_error_of_a_metastore_stops_no_table_alone_unless_it_is_about_one() -> None:
    locked = AnalysisException(f"{HIVE}MetaException(message:the database is locked)")
    assert not is_of_statement(locked)
    assert not is_permanent(locked)
    assert clear_line(locked).startswith(
        "the catalog's metastore fails: HiveException: MetaException(message:the database"
    )
    forbidden = AnalysisException(f"{HIVE}AccessControlException: Permission denied: user=spark")
    assert not is_of_statement(forbidden)
    assert is_permanent(forbidden)
    assert is_of_statement(AnalysisException(f"{HIVE}AlreadyExistsException(message:Table lake.T already exists)"))
    about = "Unable to alter table. InvalidOperationException(message:The following columns have types incompatible)"
    assert is_of_statement(AnalysisException(f"{HIVE}{about}"))
