"""Parts of the plain specifications of rows: checks of fields, and the comparison of payloads by meaning.

The modules beside this one specify a form of rows each, independently of the connector's decoders. Each takes a row as
it was generated, before it was encoded, and returns its records, or raises :class:`InvalidError`. Payloads are given as
canonical JSON, because the forms write it differently. Only timestamps are read by the connector's own function
(:mod:`connector.core.timestamps`), which has tests of its own.
"""

import json
import re
from collections.abc import Callable
from typing import Any, cast

from connector.core.records import ColumnType, DataChangeRecord, Mod, Record
from connector.core.schemas import canonical_type
from connector.core.timestamps import parse

READ = 1_790_000_000_123_456_789


class InvalidError(Exception):
    """The row is not valid."""


def need(condition: object) -> None:
    """Raises :class:`InvalidError` unless the condition holds."""
    if not condition:
        raise InvalidError


def meant(record: Record) -> Record:
    """Returns a decoder's record with its payloads as canonical JSON, and without its size."""
    if not isinstance(record, DataChangeRecord):
        return record
    mods = tuple(
        cast("Mod", tuple(canonical(_object(text)) for text in (mod.keys, mod.new_values, mod.old_values)))
        for mod in record.mods
    )
    return _replaced(record, mods)


def _replaced(record: DataChangeRecord, mods: tuple[Mod, ...]) -> DataChangeRecord:
    fields = {name: getattr(record, name) for name in record.__slots__}
    return DataChangeRecord(**{**fields, "mods": mods, "size": 0})


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text, parse_int=str, parse_float=str)
    assert isinstance(found, dict), "a payload that is not a JSON object came out of a decoder"
    return found


def canonical(node: object) -> str:
    return json.dumps(node, sort_keys=True)


def data_record(
    fields: dict[str, Any], columns: list[ColumnType], mods: list[tuple[str, str, str]]
) -> DataChangeRecord:
    return DataChangeRecord(
        **fields, column_types=tuple(columns), mods=cast("tuple[Mod, ...]", tuple(mods)), read_timestamp=READ, size=0
    )


DATA_FIELDS = (
    "commit_timestamp", "record_sequence", "server_transaction_id", "is_last_record_in_transaction_in_partition",
    "table_name", "column_types", "mods", "mod_type", "value_capture_type", "number_of_records_in_transaction",
    "number_of_partitions_in_transaction", "transaction_tag", "is_system_transaction",
)  # fmt: skip


def text(node: object) -> str:
    need(isinstance(node, str))
    return cast("str", node)


def filled_text(node: object) -> str:
    need(node)
    return text(node)


def flag(node: object) -> bool:
    need(isinstance(node, bool))
    return cast("bool", node)


def items(node: object) -> list[Any]:
    need(isinstance(node, list))
    return cast("list[Any]", node)


def time(node: object) -> int:
    try:
        found = parse(text(node))
    except ValueError:
        raise InvalidError from None
    return in_64_bits(found)


def in_64_bits(number: int) -> int:
    need(-(2**63) <= number < 2**63)
    return number


def digits(node: object) -> int:
    need(re.fullmatch("-?[0-9]{1,19}", text(node)))
    return in_64_bits(int(text(node)))


def column_type(text: str) -> str:
    try:
        node = json.loads(text)
    except ValueError:
        raise InvalidError from None
    need(isinstance(node, dict) and "code" in node)
    return canonical_type(text)


SCALARS: dict[str, Callable[[Any], Any]] = {
    "commit_timestamp": time,
    "record_sequence": filled_text,
    "server_transaction_id": filled_text,
    "is_last_record_in_transaction_in_partition": flag,
    "table_name": filled_text,
    "mod_type": filled_text,
    "value_capture_type": filled_text,
    "number_of_records_in_transaction": digits,
    "number_of_partitions_in_transaction": digits,
    "transaction_tag": text,
    "is_system_transaction": flag,
}


def parents(tokens: object) -> frozenset[str]:
    return frozenset(text(token) for token in ([] if tokens is None else items(tokens)) if token not in (None, ""))


def numbers_as_texts(node: Any) -> Any:
    """Replaces numbers by their texts; payloads here hold none that Python would write differently."""
    match node:
        case dict():
            return {name: numbers_as_texts(item) for name, item in node.items()}
        case list():
            return [numbers_as_texts(item) for item in node]
        case int() | float() if not isinstance(node, bool):
            return str(node)
        case _:
            return node
