"""Connections to BigQuery are reused; one that broke, was idle or is for other columns is replaced."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.bigquery_storage_v1 import types
from google.protobuf.descriptor_pb2 import DescriptorProto

from spark_sink.errors import DestinationUnavailableError
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget
from spark_sink.sinks.bigquery.writing import connections
from spark_sink.sinks.bigquery.writing.connections import Connection, Connections
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter


class Server:
    """Responds to calls; counts them and their requests."""

    def __init__(self) -> None:
        self.calls: list[list[types.AppendRowsRequest]] = []
        self.cancelled = 0
        self.broken = False

    def call(self, requests: Iterator[types.AppendRowsRequest]) -> "Answers":
        self.calls.append([])
        return Answers(self, requests, self.calls[-1])


class Answers:
    def __init__(
        self, server: Server, requests: Iterator[types.AppendRowsRequest], seen: list[types.AppendRowsRequest]
    ) -> None:
        self._server, self._requests, self._seen = server, requests, seen

    def __next__(self) -> types.AppendRowsResponse:
        if self._server.broken:
            self._server.broken = False
            raise exceptions.ServiceUnavailable("broken")
        self._seen.append(next(self._requests))
        return types.AppendRowsResponse(write_stream=self._seen[-1].write_stream)

    def cancel(self) -> None:
        self._server.cancelled += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def send(
    connections: Connections, server: Server, stream: str, columns: bytes = b"a", key: str = "default"
) -> types.AppendRowsResponse:
    request = types.AppendRowsRequest(write_stream=stream, proto_rows=types.AppendRowsRequest.ProtoData())
    request.proto_rows.writer_schema.proto_descriptor.name = columns.decode()
    with connections.taken((key,), stream, columns, server.call) as connection:
        return connection.send(request, columns)


def schemas(requests: list[types.AppendRowsRequest]) -> list[str]:
    return [request.proto_rows.writer_schema.proto_descriptor.name for request in requests]


def test_one_connection_carries_the_requests_of_several_tables_and_names_columns_where_they_change() -> None:
    server, connections = Server(), Connections()
    for stream in ("one", "one", "two", "one"):
        assert send(connections, server, stream, stream.encode()).write_stream == stream
    assert [schemas(call) for call in server.calls] == [["one", "", "two", "one"]]


def test_a_call_that_waits_for_its_first_answer_as_it_begins_gets_it() -> None:
    server = Server()

    def waiting(requests: Iterator[types.AppendRowsRequest]) -> Answers:
        first = next(requests)  # as a client does that fetches an answer before it gives the call back
        return server.call(itertools.chain([first], requests))

    connection = Connection(waiting)
    connection.close()
    assert server.calls == []
    connection = Connection(waiting)
    for _ in range(2):
        request = types.AppendRowsRequest(write_stream="one")
        assert connection.send(request, b"a").write_stream == "one"
    connection.close()
    assert [len(call) for call in server.calls] == [2]
    assert server.cancelled == 1


def test_a_connection_that_broke_is_opened_again_and_only_that() -> None:
    server, connections = Server(), Connections()
    send(connections, server, "one")
    send(connections, server, "two", key="other")
    server.broken = True
    with pytest.raises(exceptions.ServiceUnavailable):
        send(connections, server, "one")
    for _ in range(2):
        send(connections, server, "one")
        send(connections, server, "two", key="other")
    assert [len(call) for call in server.calls] == [1, 3, 2]
    assert server.cancelled == 1


def test_other_columns_of_a_table_take_a_new_connection_because_bigquery_reports_them_to_new_ones_only() -> None:
    server, connections = Server(), Connections()
    for columns in (b"a", b"a", b"ab", b"ab"):
        send(connections, server, "one", columns)
    assert [schemas(call) for call in server.calls] == [["a", ""], ["ab", ""]]


def test_an_idle_connection_is_closed_and_not_used_again() -> None:
    clock = Clock()
    server, connections = Server(), Connections(idle=240, clock=clock)
    send(connections, server, "one")
    send(connections, server, "two", key="other")
    clock.now = 239
    send(connections, server, "one")
    clock.now = 400
    send(connections, server, "one")
    assert [len(call) for call in server.calls] == [3, 1]
    assert server.cancelled == 1, "the other's"


def test_no_more_are_kept_than_may_be() -> None:
    server, connections = Server(), Connections(kept=2)
    for key in "abc":
        send(connections, server, key, key=key)
    assert server.cancelled == 1
    send(connections, server, "c", key="c")
    send(connections, server, "a", key="a")
    assert [len(call) for call in server.calls] == [1, 1, 2, 1]


def test_a_connection_is_used_by_one_at_a_time() -> None:
    server, connections = Server(), Connections()
    with (
        connections.taken(("key",), "one", b"a", server.call) as first,
        connections.taken(("key",), "one", b"a", server.call) as second,
    ):
        for connection in (first, second):
            connection.send(types.AppendRowsRequest(write_stream="one"), b"a")
    assert len(server.calls) == 2
    assert server.cancelled == 1, "one is enough"
    connections.close(("key",))
    assert server.cancelled == 2


def test_a_server_that_never_answers_a_first_request_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_RESPONSE_TIMEOUT", 0.2)
    ended = threading.Event()

    def silent(_requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(ended.set)
        ended.wait(120)
        return iter(())

    handler = grpc.method_handlers_generic_handler(
        "google.cloud.bigquery.storage.v1.BigQueryWrite", {"AppendRows": grpc.stream_stream_rpc_method_handler(silent)}
    )
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        target = BigQueryTarget("p", "http://127.0.0.1:1", f"127.0.0.1:{port}")
        writer = BigQueryWriter(target, BigQueryTable("T", "d", "T", (), (), (), ()), patience=0)
        with pytest.raises(DestinationUnavailableError, match="cannot write table"):
            writer.append(writer.default_stream, DescriptorProto(), [b""])
        assert ended.wait(60), "the call is cancelled"
    finally:
        server.stop(None)
