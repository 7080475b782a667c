"""Damages by hand in tables of Delta and Iceberg."""

from tests.spark_sink.reading.backfill.campaign.lakes import LakeTables
from tests.spark_sink.reading.backfill.campaign.tables import columns_of, tables
from tests.spark_sink.reading.repairs.damages import WRONG, Damages, condition


class DamagedLake(LakeTables):
    """Merged tables below a folder."""

    def damage(self, damages: Damages) -> None:
        """Damages the rows by statements of Spark."""
        for table in tables():
            target = self._target(table)
            self._spark.sql(f"REFRESH TABLE {target}")
            if altered := condition(table, damages.altered):
                self._spark.sql(f"UPDATE {target} SET Name = '{WRONG}' WHERE {altered}")
            if lost := condition(table, damages.lost):
                self._spark.sql(f"DELETE FROM {target} WHERE {lost}")
            extra = [key for of_table, key in damages.extra if of_table == table]
            if extra:
                columns = ", ".join(columns_of(table))
                values = ", ".join(f"({', '.join(map(str, key))}, '{WRONG}', 0, false)" for key in extra)
                self._spark.sql(f"INSERT INTO {target} ({columns}, _is_deleted) VALUES {values}")
