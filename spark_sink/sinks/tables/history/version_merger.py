"""The statement that brings changes of a table into its versions. Pure.

It reads the stored versions of the changed keys, from the one that is valid at a key's first change on, takes them for
events again, and computes all versions of both. So changes may come late, as rows of a backfill do, or twice. Reading
and writing are one statement, because both must be of one state of the table: it is tried again where another commit
came before.

A row that a backfill has read makes a version only where it differs from the one before, and has an empty ``_present``.
An INSERT of the stream always makes one: where its row seems to be there, a DELETE was not delivered, and may still
come with a repair.

A row without a change sequence number was written by somebody else. It is no version: the next change of its key
deletes it, unless it has an end.

A DELETE of a key of which nothing is known has no version to end. While a backfill of the table is not done, it is kept
as a version without any duration, with ``_is_deleted``: a row of the backfill may be older.
"""

from collections.abc import Iterable, Sequence

from spark_sink.sinks.tables.lake_table import (
    CAPTURED,
    DELETED,
    END,
    IS_CURRENT,
    PRESENT,
    SEQUENCE,
    TIMESTAMP,
    TYPE,
    VALID_FROM,
    VALID_TO,
    LakeTable,
    quoted,
    same_row,
    text,
)

_COMMIT, _FIRST, _NEXT, _NAMES, _KEEPS, _WAS_THERE, _WAS_READ, _IS_SAME, _IS_VERSION, _ENDS, _MARKS = (
    f"`spanner-cdc.{name}`"
    for name in (
        *("commit", "first", "next", "names", "keeps"),
        *("was-there", "was-read", "is-same", "is-version", "ends", "marks"),
    )
)
"""Columns of intermediate rows, beside those of a table of Spanner, whose names have no dash and no dot."""

_NO_NAMES = "CAST(array() AS ARRAY<STRING>)"
_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def history_statement(
    table: LakeTable, target: str, changes: str, *, keeps_deleted: bool, of_backfill: bool, tasks: int
) -> str:
    """Merges the changes of a micro-batch, or rows of a backfill, into the versions of a table.

    Args:
        table: the table.
        target: the table, as a statement names it.
        changes: the view of the typed changes; each commit timestamp's of a key are complete.
        keeps_deleted: whether the DELETE of an unknown key is kept, because an older row may come.
        of_backfill: whether the changes are rows of a backfill.
        tasks: the number of tasks that compute the versions: each leaves a file.
    """
    written = list(map(quoted, table.all_columns("history")))
    of_table, of_source = (f"struct({', '.join(f'{one}.{name}' for name in written)})" for one in "ts")
    events = _events(table, changes, of_backfill=of_backfill)
    versions = _versions(table, target, changes, events, keeps_deleted=keeps_deleted, tasks=tasks)
    return (
        f"MERGE INTO {target} AS t USING ({versions}) AS s"
        f" ON {same_row(table)} AND {_commit(f't.{SEQUENCE}')} <=> s.{_COMMIT}"
        f" WHEN MATCHED AND NOT s.{_KEEPS} THEN DELETE"
        f" WHEN MATCHED AND NOT ({of_table} <=> {of_source})"
        f" THEN UPDATE SET {', '.join(f'{name} = s.{name}' for name in written)}"
        f" WHEN NOT MATCHED AND s.{_KEEPS}"
        f" THEN INSERT ({', '.join(written)}) VALUES ({', '.join(f's.{name}' for name in written)})"
    )


def _versions(table: LakeTable, target: str, changes: str, events: str, *, keeps_deleted: bool, tasks: int) -> str:
    """The versions of the changed keys, and, without the flag :data:`_KEEPS`, what is no version (any more)."""
    keys = [quoted(name) for name in table.primary_key]
    values = [name for name in table.columns if name not in table.primary_key]
    columns = _listed([*keys, *map(quoted, values)])
    of_key = f"PARTITION BY {', '.join(keys) or 'true'}"
    ends = f"CASE WHEN {_IS_VERSION} OR {_ENDS} THEN struct({VALID_FROM} AS at, {SEQUENCE} AS sequence) END"
    steps = {
        "first_changes": _first_changes(keys, changes),
        "stored": _stored(table, target, of_key),
        "events": events,
        "changed": _changed(keys, values, of_key),
        "states": _states(keys, values),
        "compared": (
            f"SELECT *, {TYPE} = 'INSERT' AND {PRESENT} IS NOT NULL AS {_WAS_READ},"
            f" coalesce(lag({TYPE}) OVER in_order <> 'DELETE', false) AS {_WAS_THERE},"
            f" lag({_state(values)}) OVER in_order <=> {_state(values)} AS {_IS_SAME}"
            f" FROM states WINDOW in_order AS ({of_key} ORDER BY {_COMMIT})"
        ),
        "flagged": (
            f"SELECT *, {TYPE} <> 'DELETE' AND NOT ({_WAS_READ} AND {_WAS_THERE} AND {_IS_SAME})"
            f" AS {_IS_VERSION}, {TYPE} = 'DELETE' AND {_WAS_THERE} AS {_ENDS},"
            f" {TYPE} = 'DELETE' AND NOT {_WAS_THERE} AND {_COMMIT} IS NOT NULL AND {str(keeps_deleted).lower()}"
            f" AS {_MARKS} FROM compared"
        ),
        "ended": f"SELECT *, lead({ends}) IGNORE NULLS OVER ({of_key} ORDER BY {_COMMIT}) AS {_NEXT} FROM flagged",
    }
    return (
        f"WITH {', '.join(f'{name} AS ({query})' for name, query in steps.items())}"
        f" SELECT /*+ COALESCE({tasks}) */ {columns}{VALID_FROM},"
        f" CASE WHEN {_MARKS} THEN {VALID_FROM} ELSE {_NEXT}.at END AS {VALID_TO},"
        f" NOT {_MARKS} AND {_NEXT} IS NULL AS {IS_CURRENT}, {SEQUENCE},"
        f" CASE WHEN {_MARKS} THEN {SEQUENCE} ELSE {_NEXT}.sequence END AS {END},"
        f" {TYPE} AS {table.own[TYPE]}, {PRESENT}, {CAPTURED}, {_MARKS} AS {DELETED}, {_COMMIT},"
        f" {_IS_VERSION} OR {_MARKS} AS {_KEEPS} FROM ended"
    )


def _first_changes(keys: Sequence[str], changes: str) -> str:
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {_listed(keys)}min({_commit(SEQUENCE)}) AS {_FIRST} FROM {changes}{grouped}"


def _stored(table: LakeTable, target: str, of_key: str) -> str:
    """The versions that a change can concern: those that are valid at a key's first change, or later."""
    names = list(map(quoted, table.all_columns("history")))
    return (
        f"SELECT *, lead({SEQUENCE}) OVER ({of_key} ORDER BY {SEQUENCE}) AS {_NEXT}"
        f" FROM (SELECT {_listed(f't.{name}' for name in names)}s.{_FIRST} FROM {target} AS t"
        f" JOIN first_changes AS s ON {same_row(table)}"
        f" WHERE t.{END} IS NULL OR {_commit(f't.{END}')} >= s.{_FIRST})"
    )


def _events(table: LakeTable, changes: str, *, of_backfill: bool) -> str:
    """The changes, and the stored versions and their ends as changes.

    An UPDATE of all columns names none. The version that is valid before a key's first change has all values that are
    known, also those that its own change did not name. What is no version is a DELETE that says nothing of values.
    """
    keys = _listed(quoted(name) for name in table.primary_key)
    values = [quoted(name) for name in table.columns if name not in table.primary_key]
    kind = table.own[TYPE]
    named = f"CASE WHEN {kind} = 'UPDATE' AND size({PRESENT}) < {len(table.columns)} THEN {PRESENT} END"
    stored = f"CASE WHEN {kind} = 'UPDATE' THEN {PRESENT} END"
    read = f"CASE WHEN {kind} = 'INSERT' THEN {_NO_NAMES} END"
    is_before = f"{_commit(SEQUENCE)} < {_FIRST}"
    nothing = _listed(f"NULL AS {name}" for name in values)
    return (
        f"SELECT {keys}{_listed(values)}{SEQUENCE}, {_commit(SEQUENCE)} AS {_COMMIT},"
        f" {table.own[TIMESTAMP]} AS {VALID_FROM}, {kind} AS {TYPE},"
        f" {read if of_backfill else named} AS {PRESENT}, {named} AS {_NAMES} FROM {changes}"
        f" UNION ALL SELECT {keys}{_listed(values)}{SEQUENCE}, {_commit(SEQUENCE)}, {VALID_FROM},"
        f" {kind}, {PRESENT}, CASE WHEN {is_before} THEN {CAPTURED} ELSE {stored} END"
        f" FROM stored WHERE NOT {DELETED} AND {SEQUENCE} IS NOT NULL"
        f" UNION ALL SELECT {keys}{nothing}{END}, {_commit(END)}, {VALID_TO}, 'DELETE', NULL,"
        f" CASE WHEN {END} IS NULL THEN {_NO_NAMES} END"
        f" FROM stored WHERE CASE WHEN {END} IS NULL THEN {SEQUENCE} IS NULL ELSE NOT ({_NEXT} <=> {END}) END"
    )


def _changed(keys: Sequence[str], values: Sequence[str], of_key: str) -> str:
    """Each event with the values after it, each in a struct, which is NULL if nothing has named the column yet."""
    after = _listed(
        f"last(CASE WHEN {_NAMES} IS NULL OR array_contains({_NAMES}, {text(name)})"
        f" THEN named_struct('value', {quoted(name)}) END, true) OVER so_far AS {quoted(name)}"
        for name in values
    )
    named = f"array_distinct(flatten(collect_list({PRESENT}) OVER of_commit))"
    return (
        f"SELECT {_listed(keys)}{after}{SEQUENCE}, {_COMMIT}, {VALID_FROM}, lead({_COMMIT}) OVER in_order AS {_NEXT},"
        f" {TYPE}, CASE WHEN bool_and({PRESENT} IS NOT NULL) OVER of_commit THEN {named} END AS {PRESENT}"
        f" FROM events WINDOW in_order AS ({of_key} ORDER BY {_COMMIT}, {SEQUENCE}, {TYPE}),"
        f" so_far AS ({of_key} ORDER BY {_COMMIT}, {SEQUENCE}, {TYPE} {_SO_FAR}),"
        f" of_commit AS ({of_key}, {_COMMIT} ORDER BY {SEQUENCE}, {TYPE} {_SO_FAR})"
    )


def _states(keys: Sequence[str], values: Sequence[str]) -> str:
    """The state after each commit timestamp."""
    captured = "CAST(NULL AS ARRAY<STRING>)"
    if values:
        is_whole = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in values)
        names = ", ".join(f"CASE WHEN {quoted(name)} IS NOT NULL THEN {text(name)} END" for name in values)
        captured = f"CASE WHEN {is_whole} THEN {captured} ELSE array_compact(array({names})) END"
    after = _listed(f"{quoted(name)}.value AS {quoted(name)}" for name in values)
    return (
        f"SELECT {_listed(keys)}{after}{SEQUENCE}, {_COMMIT}, {VALID_FROM}, {TYPE}, {PRESENT},"
        f" {captured} AS {CAPTURED} FROM changed WHERE NOT ({_NEXT} <=> {_COMMIT})"
    )


def _state(values: Iterable[str]) -> str:
    return f"struct({_listed(map(quoted, values))}{CAPTURED})"


def _commit(sequence: str) -> str:
    """The commit timestamp, with nanoseconds, in a change sequence number."""
    return f"left({sequence}, 16)"


def _listed(columns: Iterable[str]) -> str:
    """Columns, each with a comma after it."""
    return "".join(f"{column}, " for column in columns)
