"""Requests of users about single tables of a backfill, which a process that reads it follows.

``backfills/requests.json`` is written by ``spanner-cdc backfill --stop``, ``--resume`` and ``--restart``, on any
machine that reaches the spool. A stop stays until the table is resumed or restarted, also for a backfill that continues
this one. A restart is deleted by the process that follows it.
"""

from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import Field

from connector.spool.backfill.documents import BackfillProgress
from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json

Request = Literal["stop", "restart"]

_REQUESTS = "backfills/requests.json"
_TAKEN = "another process writes a request about a table of a backfill: try again"


class _Requests(Document):
    tables: dict[str, Request] = Field(default_factory=dict)


def requests_of(spool: Spool) -> dict[str, Request]:
    """The requests, by table.

    Args:
        spool: the change stream's.

    Raises:
        SpoolError: they cannot be read.
    """
    found = spool.find(_REQUESTS, _Requests, "it is not a valid list of requests")
    return found.tables if found else {}


def stopped_tables(spool: Spool) -> frozenset[str]:
    """The tables that are stopped; see :func:`requests_of`."""
    return frozenset(table for table, request in requests_of(spool).items() if request == "stop")


def write_request(spool: Spool, tables: Iterable[str], request: Request) -> None:
    """Replaces the requests about some tables.

    Raises:
        SpoolInUseError: another process writes requests at the same time.
        SpoolError: the disk refuses.
    """
    if added := dict.fromkeys(tables, request):
        _replace(spool, added)


def withdraw_requests(spool: Spool, tables: Iterable[str], only: Request | None = None) -> None:
    """Deletes the requests about some tables, or only those of one kind; see :func:`write_request` for errors."""
    names = [table for table, request in requests_of(spool).items() if only in (None, request)]
    if gone := set(tables).intersection(names):
        _replace(spool, {}, gone, only)


def _replace(spool: Spool, added: dict[str, Request], gone: Collection[str] = (), only: Request | None = None) -> None:
    with spool.storage.locked("backfills/requests.lock", _TAKEN):
        known = requests_of(spool)
        kept = {name: one for name, one in known.items() if name not in gone or only not in (None, one)}
        spool.storage.replace(_REQUESTS, to_json(_Requests(tables={**kept, **added})))


def with_stops(progress: BackfillProgress, stopped: Collection[str]) -> BackfillProgress:
    """A backfill's progress with the stopped tables of which rows are still to be read. Pure."""
    tables = tuple(
        table.model_copy(update={"state": "stopped"})
        if table.table in stopped and table.state not in ("read", "done")
        else table
        for table in progress.tables
    )
    return progress.model_copy(update={"tables": tables})
