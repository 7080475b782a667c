"""The columns of one table after the rules, and the payloads that hold them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from connector.core.masking.digests import Digester
from connector.core.records import ColumnType

_EMPTY = "{}"
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnlistedColumnError(ValueError):
    """A payload has a column that is not listed, so that it is not known whether it may be kept."""


@dataclass(frozen=True, slots=True)
class ColumnMask:
    """Some columns of a table after the rules.

    Attributes:
        table: its name.
        columns: those that are kept; hashed ones are strings.
        listed: the names of all columns that there were.
        dropped: the names of those that are excluded.
        digesters: by name, those of hashed columns.
    """

    table: str
    columns: tuple[ColumnType, ...]
    listed: frozenset[str]
    dropped: frozenset[str]
    digesters: Mapping[str, Digester]

    def payload(self, text: str) -> str:
        """The text of a JSON object after the rules; values that are kept stay as they were, byte for byte.

        Args:
            text: an object with some of the listed columns, values as Spanner encodes them.

        Raises:
            UnlistedColumnError: it has another column.
            ValueError: it is not a JSON object.
        """
        if text == _EMPTY:
            return text
        try:
            values = _object.decode(text)
        except msgspec.DecodeError:
            raise ValueError("a payload is not a JSON object") from None  # the cause may hold a value
        if not self.listed.issuperset(values):
            raise UnlistedColumnError(f"a payload of table {self.table} has a column that the record does not list")
        if self.dropped.isdisjoint(values) and self.digesters.keys().isdisjoint(values):
            return text
        masked = {name: self._masked(name, value) for name, value in values.items() if name not in self.dropped}
        return msgspec.json.encode(masked).decode()

    def _masked(self, name: str, value: msgspec.Raw) -> msgspec.Raw:
        digester = self.digesters.get(name)
        return value if digester is None else msgspec.Raw(digester.digest(bytes(value)))
