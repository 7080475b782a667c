"""Calls that read a database's DDL, and that change its tables.

A transient error is retried for :data:`PATIENCE` seconds. Then the sink's process ends, and is started again. A change
that was requested twice is refused the second time, as one that is made already: the requester checks.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.api_core.exceptions import ClientError, Forbidden, GoogleAPICallError, from_grpc_status
from google.cloud.spanner_admin_database_v1 import DatabaseAdminClient
from google.cloud.spanner_admin_database_v1.services.database_admin.transports import DatabaseAdminGrpcTransport

from connector.config.address import DatabaseAddress
from connector.errors import SpannerCdcError, UnreachableError
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import ADMIN, SETUP_TIMEOUT
from connector.spanner.errors import (
    READER,
    Access,
    CallAction,
    CallError,
    gone_container,
    setup_error,
)
from connector.spanner.refusals import refusal
from spark_sink.errors import PermanentError, SinkError
from spark_sink.sinks.spanner.destination_tables import WRITER
from spark_sink.sinks.spanner.writing.retried_calls import RetriedError, repeated

PATIENCE = 60.0
"""Seconds for which a call is requested again."""

_LONGEST = 300.0
"""Seconds that a change may take once the database has accepted it."""

_FIRST_LOOK, _LONGEST_PAUSE = 0.05, 2.0

_T = TypeVar("_T")


def ddl_of(address: DatabaseAddress, access: Access = READER) -> list[str]:
    """The statements that make a database's tables.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses it.
    """
    what, needs = "refuses to show its DDL", "roles/spanner.databaseReader"
    with _connected(address) as (client, admin):

        def get() -> list[str]:
            found = admin.get_database_ddl(database=client.database, retry=None, timeout=SETUP_TIMEOUT)
            return list(found.statements)

        return _requested(client, access, what, f"Give the sink {needs}.", get)


def change_tables(target: DatabaseAddress, statements: list[str]) -> None:
    """Changes a database's tables, and waits until that is done.

    Raises:
        SinkError: the database refuses it; the cause is what Google's library says.
        SpannerCdcError: the database cannot be reached.
    """
    what, hint = "refuses a change of its tables", "Make it by hand, and start again."
    with _connected(target) as (client, admin):

        def begin() -> str:
            operation = admin.update_database_ddl(
                database=client.database, statements=statements, retry=None, timeout=SETUP_TIMEOUT
            )
            return str(operation.operation.name)

        def is_done() -> bool:
            found = admin.transport.operations_client.get_operation(name, retry=None, timeout=SETUP_TIMEOUT)
            if found.HasField("error"):
                raise from_grpc_status(found.error.code, found.error.message)
            return bool(found.done)

        name = _requested(client, WRITER, what, hint, begin)
        pause, until = _FIRST_LOOK, time.monotonic() + _LONGEST
        while not _requested(client, WRITER, what, hint, is_done):
            if time.monotonic() > until:
                raise UnreachableError(
                    f"{client.database} has not finished a change of its tables within {_LONGEST:.0f} s",
                    hint="Spanner continues it; the sink looks again once it is restarted.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


@contextmanager
def _connected(address: DatabaseAddress) -> Iterator[tuple[BlockingClient, DatabaseAdminClient]]:
    with BlockingClient(address, scopes=ADMIN) as client:
        yield client, DatabaseAdminClient(transport=DatabaseAdminGrpcTransport(channel=client.channel))


def _requested(client: BlockingClient, access: Access, what: str, hint: str, call: Callable[[], _T]) -> _T:
    """The result of a call, which is requested again while its error may pass."""

    def attempt() -> _T:
        try:
            return call()
        except GoogleAPICallError as error:
            found = client.failed(error)
            if found.action is not CallAction.STOP:
                raise RetriedError(found) from error
            raise _refused(error, found, client.database, access, what, hint) from error

    part = f"tables of {client.database}"
    return repeated(attempt, client, access, "look at the tables of", part, patience=PATIENCE, first_pause=0.1)


def _refused(
    error: GoogleAPICallError, found: CallError, database: str, access: Access, what: str, hint: str
) -> SpannerCdcError:
    if gone_container(found):
        return setup_error(found, database, access)
    why = " ".join(str(error.message).split())
    if isinstance(error, Forbidden) and (known := refusal(found.details.reason, found.message)):
        what, hint = f"{what}: {known.why}", known.hint
    elif isinstance(error, Forbidden) and access is WRITER:
        hint = "Make it by hand, or give the sink roles/spanner.databaseAdmin, and start again."
    kind = PermanentError if isinstance(error, ClientError) else SinkError
    return kind(f"{database} {what} ({error.code}: {why})", hint=hint)
