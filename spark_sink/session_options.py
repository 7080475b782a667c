"""Options that a session need not offer. Nothing here needs the classic part of PySpark, which Connect may lack."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_sink.errors import text_of

NO_OPTION = "CONFIG_NOT_AVAILABLE"
"""The condition of the error of a session that does not offer an option, as on Databricks serverless."""


def conf_or_none(spark: SparkSession, name: str) -> str | None:
    """Reads an option of a session.

    Args:
        spark: the session, of whatever kind.
        name: the option.

    Returns:
        Its value; None if it is not set, or the session does not offer it. On Databricks serverless asking for most
        options is an error, whatever the default.
    """
    try:
        return spark.conf.get(name, None)
    except PySparkException as error:
        if NO_OPTION not in text_of(error):
            raise
        return None
