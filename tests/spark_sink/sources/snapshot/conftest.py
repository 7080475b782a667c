"""PySpark 4.0 pushes no filters to Python sources, and has none of the classes that the conditions are made of."""

from pyspark.sql import datasource

collect_ignore = [] if hasattr(datasource, "Filter") else ["test_conditions.py"]
