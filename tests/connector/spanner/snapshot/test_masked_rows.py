"""Rows that are read from tables are after `source.columns`, whoever reads them."""

import orjson
import pyarrow as pa
import pytest

from connector.config.columns import Columns
from connector.core.dialects import BY_NAME
from connector.core.masking.digests import Digester
from connector.core.masking.rules import STRING_TYPE
from connector.errors import ConfigurationError
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition
from tests.connector.spanner.snapshot.scripted import TABLE, contents, middle, serving, source_of

SALT = "a salt of the tests"
INT64 = '{"code":"INT64"}'
NAMES = ("Id", "Required", "StringValue")


def rules(*exclude: str, **hashed: str) -> Columns:
    return Columns.model_validate({"exclude": exclude, "hash": {f"*.{name}": {"salt": SALT} for name in hashed}})


def test_rows_of_partitions_and_rows_by_key_are_after_the_rules() -> None:
    with serving() as server:
        at, source = middle(server), source_of(server)
        rows = contents(server, TABLE, at)
        address = source.model_copy(update={"columns": rules("*.StringValue", Required=INT64)}).address
        digest = Digester(INT64, SALT.encode()).digest
        wanted = {row["Id"]: orjson.loads(digest(orjson.dumps(row["Required"]))) for row in rows}
        query = TableQuery(TABLE, NAMES)
        with Snapshot.open(address, at) as snapshot:
            described = snapshot.columns(query, BY_NAME["googlesql"])
            assert [(one.name, one.type) for one in described] == [("Id", STRING_TYPE), ("Required", STRING_TYPE)]
            parts = snapshot.partitions(query, BY_NAME["googlesql"])
        blocks = [block for part in parts for block in read_partition(address, part, table=TABLE)]
        keys = pa.array([orjson.dumps({"Id": row["Id"]}).decode() for row in rows], pa.string())
        for found in (blocks, list(read_keys(address, query, keys, ["Id"], at))):
            texts = [orjson.loads(text) for block in found for text in block.payloads(NAMES).to_pylist()]
            assert {row.pop("Id"): row for row in texts} == {key: {"Required": one} for key, one in wanted.items()}
            with pytest.raises(ValueError, match="masked in payloads only"):
                found[0].typed()
        with pytest.raises(ValueError, match="the name of the table"):
            next(read_partition(address, parts[0]))


def test_rows_with_a_hashed_key_are_not_looked_up() -> None:
    with serving() as server:
        address = source_of(server).model_copy(update={"columns": rules(Id=STRING_TYPE)}).address
        with pytest.raises(ConfigurationError, match=r"source\.columns\.hash: AllTypes\.Id, a column"):
            list(read_keys(address, TableQuery(TABLE, NAMES), pa.array(['{"Id":"a"}']), ["Id"], None))
