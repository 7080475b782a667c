"""Access to the classes of the JVM, for functions that PySpark does not offer."""

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from connector.errors import ConfigurationError


def java_classes(spark: SparkSession) -> JavaObject:
    """The packages of the JVM.

    Raises:
        ConfigurationError: the session is one of Spark Connect, which has no JVM.
    """
    return _of(spark, "_jvm")


def java_session(spark: SparkSession) -> JavaObject:
    """The session as the JVM has it.

    Raises:
        ConfigurationError: the session is one of Spark Connect, which has no JVM.
    """
    return _of(spark, "_jsparkSession")


def has_jvm(spark: SparkSession) -> bool:
    """True unless the session is one of Spark Connect."""
    try:
        java_session(spark)
    except ConfigurationError:
        return False
    return True


def session_key(spark: SparkSession) -> str:
    """Identifies a session, of which there may be several objects in Python; one of Spark Connect has a name."""
    named: str = getattr(spark, "session_id", "")
    return named or str(java_session(spark).hashCode())


def _of(spark: SparkSession, name: str) -> JavaObject:
    try:
        return getattr(spark, name)
    except Exception:  # noqa: BLE001 - Spark Connect raises one of its own for each attribute
        raise ConfigurationError(["Parquet and cuts need a session of its own JVM, not one of Spark Connect"]) from None
