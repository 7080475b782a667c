import pytest

from emulator import Emulator, SampleDatabase
from emulator.workload.tables import SCALAR_TYPES, quoted

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_sample_has_its_change_stream_and_every_column_type_of_its_dialect(emulator: Emulator, dialect: str) -> None:
    sample = SampleDatabase.create(
        emulator.host, dialect=dialect, change_stream="Orders2", value_capture_type="NEW_VALUES"
    )
    with sample.database.snapshot(multi_use=True) as snapshot:
        streams = list(snapshot.execute_sql("SELECT change_stream_name FROM information_schema.change_streams"))
        options = list(
            snapshot.execute_sql(
                "SELECT option_value FROM information_schema.change_stream_options"
                " WHERE option_name = 'value_capture_type'"
            )
        )
        columns = list(
            snapshot.execute_sql("SELECT spanner_type FROM information_schema.columns WHERE table_name = 'AllTypes'")
        )
    assert streams == [["Orders2"]]
    assert options == [["NEW_VALUES"]]
    types = {row[0].split("(")[0].lower() for row in columns}
    place = 0 if dialect == "googlesql" else 1
    expected = {names[place].split("(")[0].lower() for names in SCALAR_TYPES.values()}
    assert {name.replace("character varying", "varchar").replace("timestamp with time zone", "timestamptz")
            for name in types if "<" not in name and "[" not in name} == expected  # fmt: skip
    sample.drop()


def test_a_generated_column_is_filled_by_spanner(emulator: Emulator) -> None:
    sample = SampleDatabase.create(emulator.host)
    with sample.database.batch() as batch:
        batch.insert("Singers", ["SingerId", "FirstName", "LastName"], [[1, "Nina", "Simone"]])
    with sample.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql("SELECT FullName FROM Singers")) == [["Nina Simone"]]
    sample.drop()


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_ddl_can_be_run_on_a_sample(emulator: Emulator, dialect: str) -> None:
    sample = SampleDatabase.create(emulator.host, dialect=dialect)
    kind = "INT64" if sample.dialect == "googlesql" else "bigint"
    column = quoted("Added", sample.dialect)
    sample.run_ddl(f"ALTER TABLE {quoted('Singers', sample.dialect)} ADD COLUMN {column} {kind}")
    with sample.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql(f"SELECT {column} FROM {quoted('Singers', sample.dialect)}")) == []
    sample.drop()


def test_an_unknown_dialect_is_rejected(emulator: Emulator) -> None:
    with pytest.raises(ValueError, match="googlesql or postgresql"):
        SampleDatabase.create(emulator.host, dialect="mysql")
