"""Directed reads are checked offline, and sent with all that reads Spanner."""

import asyncio
from collections.abc import Callable

import orjson
import pyarrow as pa
import pytest

from connector.config import validated
from connector.config.address import DatabaseAddress
from connector.config.directed_reads import DirectedReads, ReplicaSelection
from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError, SpannerCdcError
from connector.spanner.partition_query import PartitionQuery, StreamAddress
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition
from tests.connector.spanner.snapshot.scripted import TABLE, middle, partitions, serving, source_of

EAST = {"location": "us-east1", "type": "READ_ONLY"}
SOURCE = {"project": "p", "instance": "instance", "database": "d", "change_stream": "Everything"}


def configured(reads: object) -> DirectedReads | None:
    return validated({"source": {**SOURCE, "directed_reads": reads}}).source.address.directed_reads


def test_replicas_are_part_of_the_databases_address() -> None:
    assert configured({"include": [EAST, {"location": "leader"}], "auto_failover_disabled": True}) == DirectedReads(
        include=(ReplicaSelection("us-east1", "READ_ONLY"), ReplicaSelection("leader")), auto_failover_disabled=True
    )
    assert configured(None) is None


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ({}, "either in include or in exclude"),
        ({"include": [EAST], "exclude": [EAST]}, "either in include or in exclude"),
        ({"include": [EAST] * 11}, "at most 10"),
        ({"include": [{}]}, "name a location, a type"),
        ({"include": [{"type": "WITNESS"}]}, "READ_ONLY"),
        ({"include": [{"region": "us-east1"}]}, "region"),
        ({"exclude": [EAST], "auto_failover_disabled": True}, "is for include"),
    ],
)
def test_what_spanner_would_refuse_is_refused_offline_with_the_options_name(reads: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        configured(reads)
    assert "source.directed_reads" in str(refused.value)


def test_change_streams_snapshots_and_completed_rows_are_read_from_these_replicas() -> None:
    reads = DirectedReads(include=(ReplicaSelection("us-east1", "READ_ONLY"),), auto_failover_disabled=True)
    query = TableQuery(TABLE, ("Id", "Required"))
    with serving(transactions=20) as server:
        address = source_of(server).model_copy(update={"directed_reads": reads}).address
        (partition, *_) = partitions(server, query, middle(server))
        readers: list[Callable[[], object]] = [
            lambda: asyncio.run(stream_records(address, middle(server))),
            lambda: list(read_partition(address, partition)),
            lambda: list(read_keys(address, query, pa.array(['{"Id":"1"}']), ["Id"], middle(server))),
        ]
        for reader in readers:
            server.directed_reads.seen.clear()
            reader()
            (seen,) = server.directed_reads.seen
            assert orjson.loads(seen) == {
                "includeReplicas": {
                    "replicaSelections": [{"location": "us-east1", "type": "READ_ONLY"}],
                    "autoFailoverDisabled": True,
                }
            }


async def stream_records(address: DatabaseAddress, start: int) -> None:
    """Reads the initial query of the change stream."""
    stream = StreamAddress(address, "high", GOOGLESQL.name, "Everything", IMMUTABLE, SECOND)
    async with stream.client().connected() as client:
        async for _ in stream.queries(client).read(PartitionQuery(INITIAL_TOKEN, start, start)):
            pass


def test_a_server_that_refuses_directed_reads_is_one_line() -> None:
    too_many = DirectedReads(include=(ReplicaSelection("a"),) * 10)
    object.__setattr__(too_many, "include", (ReplicaSelection("a"),) * 11)
    query = TableQuery(TABLE, ("Id",))
    with serving(transactions=5) as server:
        address = source_of(server).model_copy(update={"directed_reads": too_many}).address
        found = read_keys(address, query, pa.array(['{"Id":"1"}']), ["Id"], middle(server))
        with pytest.raises(SpannerCdcError, match=r"^[^\n]*replica selections[^\n]*$"):
            list(found)
