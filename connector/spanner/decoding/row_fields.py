"""The fields of change records: the kind of each, which may be NULL, and the checks of their values. Pure.

Source: https://cloud.google.com/spanner/docs/change-streams/details. A value of the wrong kind raises
:class:`UnknownRecordError`, which names the field and both kinds, and never the value. Fields after the known ones
belong to a later version of the format, and are ignored.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sys import getsizeof

import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from connector.core.records import Mod
from connector.core.schemas import canonical_type
from connector.core.timestamps import SECOND, format_rfc3339, parse


class UnknownRecordError(ValueError):
    """A row is not of the format that Spanner documents. The message never contains a value of the row."""


BOOL, LIST, STRING, NULL = "bool_value", "list_value", "string_value", "null_value"
"""Kinds of google.protobuf.Value."""

_KINDS = {BOOL: "a BOOL", LIST: "a list", STRING: "a string", NULL: "NULL", "number_value": "a number"}


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a struct.

    Args:
        name: its documented name.
        kind: the kind of google.protobuf.Value that GoogleSQL sends.
        null: whether it may be NULL.
        filled: whether a string or list must not be empty.
    """

    name: str
    kind: str
    null: bool = False
    filled: bool = False


CHANGE = (
    # "only one of these three fields contains a value; the others two are empty or NULL"
    StructField("data_change_record", LIST, null=True),
    StructField("heartbeat_record", LIST, null=True),
    StructField("child_partitions_record", LIST, null=True),
)
DATA_CHANGE = (
    StructField("commit_timestamp", STRING),
    StructField("record_sequence", STRING, filled=True),
    StructField("server_transaction_id", STRING, filled=True),
    StructField("is_last_record_in_transaction_in_partition", BOOL),
    StructField("table_name", STRING, filled=True),
    StructField("column_types", LIST),
    StructField("mods", LIST),
    StructField("mod_type", STRING, filled=True),
    StructField("value_capture_type", STRING, filled=True),
    StructField("number_of_records_in_transaction", STRING),
    StructField("number_of_partitions_in_transaction", STRING),
    StructField("transaction_tag", STRING),
    StructField("is_system_transaction", BOOL),
)
COLUMN_TYPE = (
    StructField("name", STRING, filled=True),
    StructField("type", STRING),
    StructField("is_primary_key", BOOL),
    StructField("ordinal_position", STRING),
)
MOD = (
    # A table may have no key columns, and a capture type no old values: NULL, JSON's null and {} mean the same.
    StructField("keys", STRING, null=True),
    StructField("new_values", STRING, null=True),
    StructField("old_values", STRING, null=True),
)
HEARTBEAT = (StructField("timestamp", STRING),)
HEARTBEAT_TIMESTAMP = "a change record: the timestamp of a heartbeat record"
"""Its name in error messages."""

CHILD_PARTITIONS = (
    StructField("start_timestamp", STRING),
    StructField("record_sequence", STRING),
    StructField("child_partitions", LIST, filled=True),
)
CHILD_PARTITION = (
    StructField("token", STRING, filled=True),
    # "parent tokens are null for child partitions returned from the initial change stream queries": also NULL or []
    StructField("parent_partition_tokens", LIST, null=True),
)


class Struct:
    """Checks the fields of a struct.

    Args:
        name: the struct's name in error messages.
        fields: its fields, in order.
    """

    def __init__(self, name: str, fields: tuple[StructField, ...]) -> None:
        self._name = name
        self._fields = fields
        self._kinds = [field.kind for field in fields]
        self._filled = [(number, field) for number, field in enumerate(fields) if field.filled]

    def values(self, of: Value) -> Sequence[Value]:
        """Returns the values of the struct's fields.

        Raises:
            UnknownRecordError: a field is missing, empty or of the wrong kind.
        """
        found: Sequence[Value] = items(of, self._name)
        kinds = [value.WhichOneof("kind") for value in found]
        if kinds != self._kinds:
            self._check(kinds)
        for number, field in self._filled:
            value = found[number]
            if not (value.string_value or value.list_value.values):
                raise UnknownRecordError(f"{self._name}: {field.name} is empty")
        return found

    def _check(self, kinds: list[str | None]) -> None:
        if len(kinds) < len(self._fields):
            raise UnknownRecordError(f"{self._name} has {len(kinds)} fields, not {len(self._fields)}")
        for field, kind in zip(self._fields, kinds, strict=False):
            if kind != field.kind and not (field.null and kind == NULL):
                raise UnknownRecordError(f"{self._name}: {field.name} is {_called(kind)}, not {_called(field.kind)}")


def items(value: Value, name: str) -> Sequence[Value]:
    """Returns the items of a list; ``name`` names the value in an error.

    Raises:
        UnknownRecordError: the value is not a list.
    """
    kind = value.WhichOneof("kind")
    if kind != LIST:
        raise UnknownRecordError(f"{name} is {_called(kind)}, not a list")
    found: Sequence[Value] = value.list_value.values
    return found


def _called(kind: str | None) -> str:
    return _KINDS.get(kind or "", "of an unknown kind")


_INTEGER = re.compile(r"-?[0-9]{1,19}")
SMALLEST, LARGEST = -(2**63), 2**63 - 1


def integer(of: float | str, name: str) -> int:
    """Reads an INT64, which is a string of digits, or in JSON a number, possibly with a fraction of zero.

    Raises:
        UnknownRecordError: it is not an integer of 64 bits.
    """
    if not (_INTEGER.fullmatch(of) if isinstance(of, str) else of == of // 1):
        raise UnknownRecordError(f"{name} is not an integer")
    return in_64_bits(int(of), name)


def timestamp(text: str, name: str) -> int:
    """Reads a TIMESTAMP as Unix nanoseconds.

    Raises:
        UnknownRecordError: it is not a valid timestamp, or its nanoseconds do not fit in 64 bits.
    """
    try:
        found = parse(text)
    except ValueError:
        raise UnknownRecordError(f"{name} is not a timestamp") from None
    return in_64_bits(found, name)


def in_64_bits(number: int, name: str) -> int:
    """Returns the number if it fits.

    Raises:
        UnknownRecordError: it does not fit in 64 bits.
    """
    if not SMALLEST <= number <= LARGEST:
        raise UnknownRecordError(f"{name} does not fit in 64 bits")
    return number


def type_of(text: str | bytes) -> str:
    """Returns a column's type as canonical JSON; unknown type codes are kept.

    Raises:
        UnknownRecordError: it is not a JSON object with a code.
    """
    try:
        node = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UnknownRecordError("a column's type is not JSON") from None
    if not isinstance(node, dict) or "code" not in node:
        raise UnknownRecordError("a column's type is not an object with a code")
    return canonical_type(text)


NO_MEMBERS = "{}"


def payload(text: str, name: str) -> str:
    """Returns the text of a payload's JSON object; JSON's null, sent for a table without key columns, becomes ``{}``.

    A text that begins and ends with braces is accepted without parsing: Spanner's JSON type guarantees that it is
    valid. Any other text is parsed, and its surrounding whitespace is removed.

    Raises:
        UnknownRecordError: it is not a JSON object.
    """
    if text[:1] == "{" and text[-1:] == "}":
        return text
    if text == "null":
        return NO_MEMBERS
    stripped = text.strip(" \t\r\n")
    try:
        found = orjson.loads(stripped)
    except orjson.JSONDecodeError:
        raise UnknownRecordError(f"a mod: {name} is not JSON") from None
    if found is None:
        return NO_MEMBERS
    if not isinstance(found, dict):
        raise UnknownRecordError(f"a mod: {name} is not a JSON object")
    return stripped


_MOD_OVERHEAD = 150
_RECORD_OVERHEAD = 700

CACHED_TYPES = 10_000
"""Column types that a cache keeps, by their encoded form."""


def size(mods: tuple[Mod, ...]) -> int:
    """Returns roughly how many bytes a record with these mods takes in memory."""
    text = sum(getsizeof(mod.keys) + getsizeof(mod.new_values) + getsizeof(mod.old_values) for mod in mods)
    return _RECORD_OVERHEAD + text + _MOD_OVERHEAD * len(mods)


_NAME = re.compile(r"\w[\w$.]{0,256}")
_TRANSACTION = re.compile(r"[\w+/=-]{1,256}")
_AT, _OF, _IN = (
    [field.name for field in DATA_CHANGE].index(name)
    for name in ("commit_timestamp", "table_name", "server_transaction_id")
)
_MOST = 3
"""Records of one row that are named."""

_ChangeStreamRecord = types.ChangeStreamRecord.pb()


def named(error: UnknownRecordError, row: Value) -> UnknownRecordError:
    """The error with the name of the record that it is about: its table, commit timestamp and transaction.

    Because the row is not of the documented format, a field is named only where its text looks like what the field
    holds, and only beside a valid commit timestamp. The payloads, which alone hold columns' values, are not looked at.
    """
    texts: list[str] = []
    with suppress(DecodeError, RecursionError, ValueError):
        texts = [text for text in dict.fromkeys(_records(row)) if text][:_MOST]
    return UnknownRecordError(f"{error} ({'; '.join(texts)})") if texts else error


def column_error(name: object, error: UnknownRecordError) -> UnknownRecordError:
    """The error with the name of the column that it is about."""
    return UnknownRecordError(f"column {name}: {error}") if _is(name, _NAME) else error


def type_error(column: Value, error: UnknownRecordError) -> UnknownRecordError:
    """The error of a GoogleSQL column type with the name of its column."""
    fields = column.list_value.values
    place = [field.name for field in COLUMN_TYPE].index("name")
    return column_error(fields[place].string_value if len(fields) > place else None, error)


def _records(row: Value) -> Iterator[str]:
    """The names of a row's data change records, in any of the three forms of rows."""
    for change in row.list_value.values:  # GoogleSQL
        for data in change.list_value.values[:1]:
            for record in data.list_value.values:
                fields = [field.string_value for field in record.list_value.values]
                if len(fields) > max(_AT, _OF, _IN):
                    yield _text(fields[_OF], fields[_AT], fields[_IN])
    text = row.string_value
    if text.lstrip()[:1] == "{":  # PostgreSQL
        data = orjson.loads(text).get("data_change_record")
        if isinstance(data, dict):
            yield _text(*(data.get(DATA_CHANGE[place].name) for place in (_OF, _AT, _IN)))
    elif text:  # MUTABLE_KEY_RANGE
        found = _ChangeStreamRecord.FromString(b64decode(text, validate=True)).data_change_record
        at = found.commit_timestamp
        committed = format_rfc3339(at.seconds * SECOND + at.nanos) if at.seconds > 0 else ""
        yield _text(found.table, committed, found.server_transaction_id)


def _text(table: object, commit_timestamp: object, transaction: object) -> str:
    try:
        at = format_rfc3339(parse(str(commit_timestamp)))
    except (ValueError, OverflowError):
        return ""  # the other fields are then not what they should be either, and may hold anything
    parts = (
        f"table {table}" if _is(table, _NAME) else "",
        f"committed at {at}",
        f"server_transaction_id {transaction}" if _is(transaction, _TRANSACTION) else "",
    )
    return ", ".join(filter(None, parts))


def _is(text: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None
