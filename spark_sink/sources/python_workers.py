"""Python workers of Spark: processes that run one task after the other.

After each task PySpark collects the garbage of the whole process (``pyspark/daemon.py``), and looks at some hundred
thousand objects that imports have made and nobody will ever drop. For a task of few rows that takes longer than the
rows do. So the first task sets them aside (https://docs.python.org/3/library/gc.html#gc.freeze).
"""

import gc


def set_imports_aside() -> None:
    """Sets all objects of this process aside, once: garbage collections pass over them from now on.

    They are still freed once nothing refers to them. Call it at the end of a task, which has imported what it needs.
    """
    if not gc.get_freeze_count():
        gc.collect()  # garbage that is set aside would stay for ever
        gc.freeze()
