"""Sample databases as source and destination."""

from google.cloud.spanner_v1.keyset import KeySet

from emulator import SampleDatabase

SPARK = {"master": "local[2]", "config": {"spark.driver.memory": "768m"}, "trigger": "100ms"}


def rows_of(sample: SampleDatabase) -> dict[str, list[str]]:
    """Every row of a sample database's tables, as text: NaN is not equal to itself."""
    with sample.database.snapshot(multi_use=True) as snapshot:
        return {
            table.name: sorted(
                map(repr, snapshot.read(table.name, [column.name for column in table.columns], KeySet(all_=True)))
            )
            for table in sample.tables
        }


def empty(replica: SampleDatabase) -> None:
    """Drops the change stream and the tables."""
    quote = "`" if replica.dialect == "googlesql" else '"'
    dropped = [f"DROP TABLE {quote}{table.name}{quote}" for table in reversed(replica.tables)]
    replica.run_ddl(f"DROP CHANGE STREAM {quote}{replica.change_stream}{quote}", *dropped)
