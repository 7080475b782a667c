"""Values that a process keeps of tables: the newest so many, whoever asks."""

from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MOST = 10_000
"""Values that are kept; where there are more, the one that was kept first is forgotten."""


class Remembered(Generic[_Key, _Value]):
    """A dictionary of bounded size, for several threads."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._values: dict[_Key, _Value] = {}

    def get(self, key: _Key) -> _Value | None:
        """The value of a key; None if there is none."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        """Keeps a value; of more than are kept, the oldest goes."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._most:
                del self._values[next(iter(self._values))]
