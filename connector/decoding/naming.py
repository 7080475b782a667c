"""Names the record of a row that cannot be decoded: its table, commit timestamp and transaction.

Because such a row is not of the documented format, a field is named only where its text looks like what the field
holds, and only beside a valid commit timestamp. The payloads, which alone hold columns' values, are not looked at.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress

import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.decoding.row_fields import COLUMN_TYPE, DATA_CHANGE, UnknownRecordError

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
    """The error with the name of the record that it is about, as far as the row tells it."""
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
        moment = format_rfc3339(at.seconds * SECOND + at.nanos) if at.seconds > 0 else ""
        yield _text(found.table, moment, found.server_transaction_id)


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
