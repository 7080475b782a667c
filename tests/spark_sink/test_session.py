"""The objects of the JVM that this process names are freed once nothing uses them."""

import gc
import weakref

from pyspark.sql import SparkSession

from spark_sink.session import free_unused


def test_a_data_frame_of_the_jvm_is_freed_though_python_has_it_in_a_cycle(spark: SparkSession) -> None:
    free_unused()
    gc.disable()  # else it may come first
    try:
        rows = spark.range(1)
        assert rows.count() == 1
        freed = weakref.ref(rows._jdf)
        del rows
        assert freed() is not None, "py4j has no cycle any more: free_unused() is not needed"
        free_unused()
        assert freed() is None
    finally:
        gc.enable()
        gc.unfreeze()
