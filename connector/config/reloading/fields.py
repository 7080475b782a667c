"""The options by what a reload makes of a change: every option of a configuration is in exactly one of three sets.

``source.backfill`` itself is whether there is a backfill at all; its own options are entries below it.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a reload for an option that has changed."""

    APPLIED = "applied"
    """It takes effect without a restart."""
    NEEDS_RESTART = "needs_restart"
    """It takes effect once the process that reads it is started again."""
    REFUSED = "refused"
    """It is wrong for the spool that there is, also after a restart."""


APPLIED = frozenset(
    {
        "source.tables",
        "source.skip_transaction_tags",
        "source.heartbeat",
        "source.workers",
        "source.late_records",
        "source.backfill.exclude",
        "source.backfill.where",
        "source.backfill.max_tasks",
        "source.backfill.new_tables",
        "spool.seal_interval",
        "spool.max_bytes",
        "spool.keep",
        "spark.trigger",
    }
)

READ_BY_SINK = frozenset({"source.tables", "source.backfill.exclude", "source.backfill.new_tables", "spark.trigger"})
"""Those of :data:`APPLIED` for which the sink's process is restarted, because it reads them when it starts.

By those of the backfill its cuts say which tables are incomplete. It also reads ``spool.max_bytes``, beside the
daemon's own that the spool has: the smaller one counts.
"""

NOT_READ_BY_READER = frozenset(name for name in APPLIED if name.startswith(("spark.", "source.backfill.")))
"""Those of :data:`APPLIED` for which the reader is not drained."""

NEEDS_RESTART = frozenset(
    {
        "source.backfill",
        "source.edition",
        "source.endpoint",
        "source.tls",
        "source.token_file",
        "source.emulator_host",
        "source.start",
        "source.end",
        "source.rpc_priority",
        "source.database_role",
        "source.directed_reads",
        "source.reader",
        "source.complete_rows",
        "source.labels",
        "spool.path",
        "spool.user_project",
        "envelope",
        "sink",
        "spark.master",
        "spark.checkpoint",
        "spark.config",
        "status",
        "drain_timeout",
    }
)

REFUSED = frozenset(
    {
        "source.project",
        "source.instance",
        "source.database",
        "source.change_stream",
        "source.placements",
        "source.columns",
    }
)


def outcome_of(field: str, *, on_executors: bool = False) -> Outcome:
    """The outcome for an option, by its own entry, or else by that of the section around it.

    Args:
        field: its dotted name.
        on_executors: whether Spark's executors read: a driver plans windows with the options of its start.

    Raises:
        KeyError: the option is in none of the sets.
    """
    for name in (field, field.rpartition(".")[0], field.partition(".")[0]):
        if name in APPLIED:
            return Outcome.NEEDS_RESTART if on_executors else Outcome.APPLIED
        if name in NEEDS_RESTART:
            return Outcome.NEEDS_RESTART
        if name in REFUSED:
            return Outcome.REFUSED
    raise KeyError(field)
