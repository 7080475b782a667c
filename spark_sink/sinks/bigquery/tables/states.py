"""The life of a table in BigQuery: its states, what is found out about it, and the transitions as data. Pure.

Two processes prepare a table: the sink, before its tasks write, and a replay of dead letters. Both look at the table,
which gives one event, and both do what :data:`TRANSITIONS` says: an action, and the state afterwards. They differ in
two points: only a replay examines a table that is stopped, and only the sink stops one.

An event that a state has no transition for cannot happen; :func:`transition` raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    """The states of a table in the spool's record."""

    UNKNOWN = auto()
    """No columns are recorded: the sink has not written it, though it may exist."""
    MADE = auto()
    """The sink writes it, and its columns are recorded: one that disappears was dropped by another client."""
    STOPPED = auto()
    """It cannot be written. Its rows become dead letters until it is repaired."""
    REPAIRED = auto()
    """A replay writes it again. For the sink it stays stopped until the replay resumes it."""


class Event(Enum):
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


class Action(Enum):
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

    action: Action
    state: State


TRANSITIONS: Mapping[By, Mapping[State, Mapping[Event, Transition]]] = {
    By.SINK: {
        State.UNKNOWN: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.UNKNOWN),
            Event.OTHER_MODE: Transition(Action.FAIL, State.UNKNOWN),
            Event.UNFIT: Transition(Action.STOP, State.STOPPED),
            Event.ABSENT: Transition(Action.CREATE, State.MADE),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.MADE),
            Event.FITS: Transition(Action.WRITE, State.MADE),
        },
        State.MADE: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.MADE),
            Event.OTHER_MODE: Transition(Action.FAIL, State.MADE),
            Event.UNFIT: Transition(Action.STOP, State.STOPPED),
            Event.DROPPED: Transition(Action.FAIL, State.MADE),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.MADE),
            Event.FITS: Transition(Action.WRITE, State.MADE),
        },
        State.STOPPED: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.STOPPED),
            Event.OTHER_MODE: Transition(Action.FAIL, State.STOPPED),
            Event.SKIPPED: Transition(Action.HOLD, State.STOPPED),
        },
        State.REPAIRED: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.REPAIRED),
            Event.OTHER_MODE: Transition(Action.FAIL, State.REPAIRED),
            Event.SKIPPED: Transition(Action.HOLD, State.REPAIRED),
        },
    },
    By.REPLAY: {
        State.UNKNOWN: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.UNKNOWN),
            Event.OTHER_MODE: Transition(Action.FAIL, State.UNKNOWN),
            Event.UNFIT: Transition(Action.STOP, State.UNKNOWN),
            Event.ABSENT: Transition(Action.CREATE, State.MADE),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.MADE),
            Event.FITS: Transition(Action.WRITE, State.MADE),
        },
        State.MADE: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.MADE),
            Event.OTHER_MODE: Transition(Action.FAIL, State.MADE),
            Event.UNFIT: Transition(Action.STOP, State.UNKNOWN),
            Event.DROPPED: Transition(Action.FAIL, State.MADE),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.MADE),
            Event.FITS: Transition(Action.WRITE, State.MADE),
        },
        State.STOPPED: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.STOPPED),
            Event.OTHER_MODE: Transition(Action.FAIL, State.STOPPED),
            Event.UNFIT: Transition(Action.STOP, State.STOPPED),
            Event.ABSENT: Transition(Action.CREATE, State.REPAIRED),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.REPAIRED),
            Event.FITS: Transition(Action.WRITE, State.REPAIRED),
            Event.RESUMED: Transition(Action.RESUME, State.UNKNOWN),
        },
        State.REPAIRED: {
            Event.NAME_TAKEN: Transition(Action.SET_ASIDE, State.REPAIRED),
            Event.OTHER_MODE: Transition(Action.FAIL, State.REPAIRED),
            Event.UNFIT: Transition(Action.STOP, State.STOPPED),
            Event.DROPPED: Transition(Action.FAIL, State.REPAIRED),
            Event.BEHIND: Transition(Action.ADD_COLUMNS, State.REPAIRED),
            Event.FITS: Transition(Action.WRITE, State.REPAIRED),
            Event.RESUMED: Transition(Action.RESUME, State.MADE),
        },
    },
}


def transition(by: By, state: State, event: Event) -> Transition:
    """The action and the next state that follow an event in a state.

    Raises:
        ValueError: that cannot happen in this state.
    """
    found = TRANSITIONS[by][state].get(event)
    if found is None:
        raise ValueError(f"a table that is {state.name} for the {by.name} has no transition for {event.name}")
    return found


def is_examined(by: By, state: State) -> bool:
    """True if a process looks at a table in that state, rather than going by what is recorded."""
    return Event.SKIPPED not in TRANSITIONS[by][state]
