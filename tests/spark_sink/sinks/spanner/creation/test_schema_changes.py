"""Changes of a database's tables: what is requested again, and what is refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from google.longrunning.operations_pb2 import Operation  # type: ignore[import-untyped]
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tenacity import stop_after_attempt

from connector.config.address import DatabaseAddress
from connector.core.dialects import GOOGLESQL
from connector.errors import UnreachableError
from connector.spanner import client
from connector.spanner.blocking import BlockingClient
from connector.spanner.relations import Relations
from spark_sink.errors import PermanentError
from spark_sink.sinks.spanner import creation, destination_tables, schema_changes
from spark_sink.sinks.spanner.creation import make_nullable
from spark_sink.sinks.spanner.destination_tables import DestinationDatabase, awaited_destination
from spark_sink.sinks.spanner.schema_changes import change_tables
from spark_sink.sinks.spanner.writing import retried_calls
from tests.retried import noted_causes, still_retried

DONE, RUNNING = Operation(name="operations/1", done=True), Operation(name="operations/1")


@dataclass
class Admin(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers the calls that change tables, in order; the last answer of each again and again.

    Attributes:
        updates: to the calls that begin a change.
        looks: to those that ask whether it is done.
        calls: the names of all calls.
    """

    updates: list[object]
    looks: list[object] = field(default_factory=lambda: [DONE])
    calls: list[str] = field(default_factory=list)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]
        answers = self.updates if name == "UpdateDatabaseDdl" else self.looks

        def answered(_: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls.append(name)
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "as it is said")
            if isinstance(answer, Status):
                context.set_trailing_metadata((("grpc-status-details-bin", answer.SerializeToString()),))
                context.abort(grpc.StatusCode.PERMISSION_DENIED, answer.message)
            assert isinstance(answer, Message)
            return bytes(answer.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answered)


@pytest.fixture
def port() -> Iterator[tuple[grpc.Server, int]]:
    server = grpc.server(ThreadPoolExecutor(2))
    yield server, server.add_insecure_port("127.0.0.1:0")
    server.stop(0).wait()


def changed(port: tuple[grpc.Server, int], admin: Admin) -> Admin:
    server, number = port
    server.add_generic_rpc_handlers((admin,))
    server.start()
    change_tables(DatabaseAddress("p", "i", "d", None, f"127.0.0.1:{number}"), ["CREATE TABLE T (Id INT64)"])
    return admin


def test_a_change_is_made_though_spanner_cannot_be_reached_for_a_while(port: tuple[grpc.Server, int]) -> None:
    unavailable = grpc.StatusCode.UNAVAILABLE
    admin = changed(port, Admin([unavailable, grpc.StatusCode.ABORTED, RUNNING], [unavailable, RUNNING, DONE]))
    assert admin.calls == ["UpdateDatabaseDdl"] * 3 + ["GetOperation"] * 3


def test_a_database_that_does_not_answer_for_long_is_an_error_that_a_restart_may_heal(
    port: tuple[grpc.Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retried_calls, "stop_after_delay", lambda _: stop_after_attempt(3))
    causes = noted_causes(monkeypatch)
    with pytest.raises(UnreachableError, match=r"Spanner does not answer for projects/p/.*UNAVAILABLE"):
        changed(port, Admin([grpc.StatusCode.UNAVAILABLE]))
    assert causes
    where = "cannot look at the tables of projects/p/instances/i/databases/d: Spanner does not answer at "
    assert all(cause.startswith(where) for cause in causes)
    assert still_retried() == []


def test_a_destination_that_does_not_answer_is_asked_again_and_named_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.1)
    monkeypatch.setattr(destination_tables, "stop_after_delay", lambda _: stop_after_attempt(2))
    causes = noted_causes(monkeypatch)
    with pytest.raises(UnreachableError):
        awaited_destination(DatabaseAddress("p", "i", "d", None, "127.0.0.1:1"))
    assert causes
    assert all(cause.startswith("cannot write projects/p/instances/i/databases/d: no Spanner") for cause in causes)
    assert still_retried() == []


def test_a_missing_permission_is_final_at_once_and_says_which_role_is_needed(port: tuple[grpc.Server, int]) -> None:
    admin = Admin([grpc.StatusCode.PERMISSION_DENIED])
    with pytest.raises(PermanentError, match=r"or give the sink roles/spanner\.databaseAdmin, and start again"):
        changed(port, admin)
    assert admin.calls == ["UpdateDatabaseDdl"]


def test_a_change_that_the_database_refuses_later_is_final_and_says_why(port: tuple[grpc.Server, int]) -> None:
    failed = Operation(name="operations/1", done=True, error=Status(code=9, message="Table T has rows"))
    with pytest.raises(PermanentError, match=r"refuses a change of its tables \(400: Table T has rows\). Make it by"):
        changed(port, Admin([RUNNING], [RUNNING, failed]))


def test_a_refusal_that_is_no_missing_role_is_named_as_itself_with_what_cures_it(
    port: tuple[grpc.Server, int],
) -> None:
    info = Any()
    info.Pack(ErrorInfo(reason="SERVICE_DISABLED", domain="googleapis.com"))
    with pytest.raises(PermanentError, match=r"the Spanner API is disabled.*Enable spanner\.googleapis\.com") as caught:
        changed(port, Admin([Status(code=7, message="as it is said", details=[info])]))
    assert "databaseAdmin" not in str(caught.value)


def test_a_refused_token_is_not_sent_again(port: tuple[grpc.Server, int], monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[BlockingClient] = []
    monkeypatch.setattr(BlockingClient, "renew_token", lambda one: renewed.append(one))
    changed(port, Admin([grpc.StatusCode.UNAUTHENTICATED, RUNNING]))
    assert len(renewed) == 1


def test_a_proxy_that_may_be_why_nothing_answers_is_named(
    port: tuple[grpc.Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Behind(BlockingClient):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]  # as they were given
            self.proxy = "https_proxy"

    monkeypatch.setattr(schema_changes, "BlockingClient", Behind)
    monkeypatch.setattr(schema_changes, "PATIENCE", 0.1)
    with pytest.raises(UnreachableError, match=r"the proxy that https_proxy names"):
        changed(port, Admin([grpc.StatusCode.UNAVAILABLE]))


def test_a_destination_whose_columns_cannot_be_read_is_advised_on_by_its_own_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.1)
    found = DestinationDatabase(GOOGLESQL, Relations((), {}, frozenset(), {}, frozenset()), {})
    monkeypatch.setattr(creation, "awaited_destination", lambda *_: found)
    with pytest.raises(UnreachableError, match=r"or sink\.emulator_host"):
        make_nullable({"T": ["c"]}, DatabaseAddress("p", "i", "d", None, "127.0.0.1:1"))
