"""The life of a table in BigQuery: its states, what is found out about it, and the transitions as data. Pure.

Two processes prepare a table: the sink, before its tasks write, and a replay of dead letters. Both look at the table,
which gives one event, and both do what :data:`TRANSITIONS` says: an action, and the state afterwards. They differ in
two points: only a replay examines a table that is stopped, and only the sink stops one.

An event that a state has no transition for cannot happen; :func:`transition` raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class TableStage(Enum):
    """The states of a table in the spool's record."""

    UNKNOWN = auto()
    """No columns are recorded: the sink has not written it, though it may exist."""
    MADE = auto()
    """The sink writes it, and its columns are recorded: one that disappears was dropped by another client."""
    STOPPED = auto()
    """It cannot be written. Its rows become dead letters until it is repaired."""
    REPAIRED = auto()
    """A replay writes it again. For the sink it stays stopped until the replay resumes it."""


class TableFinding(Enum):
    """The findings about a table, in the order in which it is examined."""

    NAME_TAKEN = auto()
    """Another table of the source is written under its name."""
    OTHER_MODE = auto()
    """It was created for another mode of the sink."""
    SKIPPED = auto()
    """It was not examined, because only a replay examines a stopped table."""
    UNFIT = auto()
    """Its columns or its key cannot be written."""
    DROPPED = auto()
    """It is gone, or a column that was created."""
    ABSENT = auto()
    """It does not exist, and never did."""
    BEHIND = auto()
    """It exists, and lacks columns."""
    FITS = auto()
    """It exists with all of its columns."""
    RESUMED = auto()
    """The replay has sent its dead letters."""


class TableAction(Enum):
    """The actions that follow an event of a table."""

    SET_ASIDE = auto()
    """Its rows become dead letters; nothing is recorded."""
    FAIL = auto()
    """An error ends the run, or the replay of this table; nothing is recorded."""
    HOLD = auto()
    """Its rows become dead letters, for the reason that is recorded."""
    STOP = auto()
    """Its rows become dead letters, for the reason that was found. Recorded columns no longer count."""
    CREATE = auto()
    """It is created, then written."""
    ADD_COLUMNS = auto()
    """The columns that it lacks are added, then it is written."""
    WRITE = auto()
    """It is written as it is."""
    RESUME = auto()
    """The recorded reason is removed."""


class By(Enum):
    """The process that prepares a table."""

    SINK = auto()
    REPLAY = auto()


@dataclass(frozen=True, slots=True)
class Transition:
    """An action, and the state after it."""

    action: TableAction
    state: TableStage


_Transitions = Mapping[TableFinding, Transition]


def _always(state: TableStage) -> _Transitions:
    """The transitions of every state."""
    return {
        TableFinding.NAME_TAKEN: Transition(TableAction.SET_ASIDE, state),
        TableFinding.OTHER_MODE: Transition(TableAction.FAIL, state),
    }


def _examined(state: TableStage, *, unfit: TableStage, after: TableStage, has_columns: bool) -> _Transitions:
    """The transitions of a table that is examined; ``has_columns`` if its columns are recorded."""
    gone = {TableFinding.DROPPED: Transition(TableAction.FAIL, state)}
    return {
        **_always(state),
        TableFinding.UNFIT: Transition(TableAction.STOP, unfit),
        **(gone if has_columns else {TableFinding.ABSENT: Transition(TableAction.CREATE, after)}),
        TableFinding.BEHIND: Transition(TableAction.ADD_COLUMNS, after),
        TableFinding.FITS: Transition(TableAction.WRITE, after),
    }


def _held(state: TableStage) -> _Transitions:
    """The transitions of a table that is stopped for the sink."""
    return {**_always(state), TableFinding.SKIPPED: Transition(TableAction.HOLD, state)}


TRANSITIONS: Mapping[By, Mapping[TableStage, _Transitions]] = {
    By.SINK: {
        TableStage.UNKNOWN: _examined(
            TableStage.UNKNOWN, unfit=TableStage.STOPPED, after=TableStage.MADE, has_columns=False
        ),
        TableStage.MADE: _examined(TableStage.MADE, unfit=TableStage.STOPPED, after=TableStage.MADE, has_columns=True),
        TableStage.STOPPED: _held(TableStage.STOPPED),
        TableStage.REPAIRED: _held(TableStage.REPAIRED),
    },
    By.REPLAY: {
        TableStage.UNKNOWN: _examined(
            TableStage.UNKNOWN, unfit=TableStage.UNKNOWN, after=TableStage.MADE, has_columns=False
        ),
        TableStage.MADE: _examined(TableStage.MADE, unfit=TableStage.UNKNOWN, after=TableStage.MADE, has_columns=True),
        TableStage.STOPPED: {
            **_examined(TableStage.STOPPED, unfit=TableStage.STOPPED, after=TableStage.REPAIRED, has_columns=False),
            TableFinding.RESUMED: Transition(TableAction.RESUME, TableStage.UNKNOWN),
        },
        TableStage.REPAIRED: {
            **_examined(TableStage.REPAIRED, unfit=TableStage.STOPPED, after=TableStage.REPAIRED, has_columns=True),
            TableFinding.RESUMED: Transition(TableAction.RESUME, TableStage.MADE),
        },
    },
}


def transition(by: By, state: TableStage, event: TableFinding) -> Transition:
    """The action and the next state that follow an event in a state.

    Raises:
        ValueError: that cannot happen in this state.
    """
    found = TRANSITIONS[by][state].get(event)
    if found is None:
        raise ValueError(f"a table that is {state.name} for the {by.name} has no transition for {event.name}")
    return found


def is_examined(by: By, state: TableStage) -> bool:
    """True if a process looks at a table in that state, rather than going by what is recorded."""
    return TableFinding.SKIPPED not in TRANSITIONS[by][state]
