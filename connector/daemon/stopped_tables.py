"""``spanner-cdc backfill --stop``, ``--resume`` and ``--restart``: requests about tables of an unfinished backfill."""

from collections.abc import Sequence

from connector.errors import ConfigurationError
from connector.spool.backfill.records import backfills
from connector.spool.backfill.requests import stopped_tables, withdraw_requests, write_request
from connector.spool.reading import Spool

_NEXT = "a process that reads the backfill follows; if none runs, `spanner-cdc backfill CONFIG` continues it"
_ENDING = "all rows of the backfill are read already: only a process that is started before they are delivered follows"


def request_tables(
    spool: Spool, *, stop: Sequence[str] = (), resume: Sequence[str] = (), restart: Sequence[str] = ()
) -> list[str]:
    """Records requests about tables, by their exact names; returns what to say of them.

    Args:
        spool: the change stream's.
        stop: the tables of which no further partition is read.
        resume: stopped tables that are read further.
        restart: the tables that are read from their first row, at the backfill's timestamp.

    Raises:
        ConfigurationError: a table is in no backfill that is not finished, is not stopped, or is read already.
        SpoolError: the spool cannot be read or written.
    """
    known = backfills(spool)
    continued = {one.document.continues for one in known}
    left = [
        (one.is_read, table)
        for one in known
        if one.document.number not in continued and not one.document.is_repair
        for table in one.progress.tables
        if table.state != "done"
    ]
    unfinished = {table.table for _, table in left}
    read = {table.table for _, table in left if table.state == "read"}
    ending = {table.table for is_read, table in left if is_read}
    errors = [
        f"{option} {table}: it is in no backfill that is not finished; `spanner-cdc backfill CONFIG --table {table}`"
        " reads it in a new one"
        for option, tables in (("--stop", stop), ("--restart", restart))
        for table in tables
        if table not in unfinished
    ]
    errors += [f"--stop {table}: all of its rows are read, and are being delivered" for table in stop if table in read]
    stopped = stopped_tables(spool)
    errors += [f"--resume {table}: it is not stopped" for table in resume if table not in stopped]
    if len({*stop, *resume, *restart}) < len([*stop, *resume, *restart]):
        errors.append("--stop, --resume, --restart: a table is named twice")
    if errors:
        raise ConfigurationError(errors)
    write_request(spool, stop, "stop")
    withdraw_requests(spool, resume, only="stop")
    write_request(spool, restart, "restart")
    asked = (("stopped", stop), ("resumed", resume), ("restarted", restart))
    said = [f"{what}: {', '.join(tables)}" for what, tables in asked if tables]
    return [*said, _ENDING if ending.intersection(restart) else _NEXT]
