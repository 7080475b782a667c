"""Reads the rows of an append: serialized messages of the writer's schema, as changes to a table's columns.

Like BigQuery, it matches fields and columns by name, ignoring case, reads a missing field as NULL, and rejects fields
that are not columns of the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from emulator.bigquery.contents import Row, WrittenRow
from emulator.bigquery.refusals import StorageCode, unwritable
from emulator.bigquery.schema import ColumnDefinition
from emulator.bigquery.values import Convert, converter

_CHANGE_TYPE = "_CHANGE_TYPE"
_SEQUENCE = "_CHANGE_SEQUENCE_NUMBER"
_PSEUDO = (_CHANGE_TYPE, _SEQUENCE)
_MOST_COLUMNS_OF_CHANGES = 2000
_SECTIONS = re.compile(r"[0-9A-Fa-f]{1,16}(?:/[0-9A-Fa-f]{1,16}){0,3}")


class RowReader:
    """Reads rows that are written with one schema for a table of some columns and key.

    Raises WriteError if the schema does not fit the table. The argument `changes` says whether rows may be changes by
    key; the attribute whether they are, which is so if the writer's schema has a field _CHANGE_TYPE. The rules of
    changes, and the format of their numbers, are those of
    https://cloud.google.com/bigquery/docs/change-data-capture.
    """

    def __init__(
        self, descriptor: DescriptorProto, schema: Sequence[ColumnDefinition], key: Sequence[str], *, changes: bool
    ) -> None:
        compiled = _compile(descriptor)
        names = {field.name for field in compiled.fields}
        self._class = GetMessageClass(compiled)
        self.changes = _CHANGE_TYPE in names
        self._sequenced = _SEQUENCE in names
        self._struct = _Struct(compiled, schema, "")
        if self._sequenced and not self.changes:
            raise unwritable(f"{_SEQUENCE} is only valid together with {_CHANGE_TYPE}")
        if not self.changes:
            return
        if not changes or not key:
            raise unwritable(
                "The given value is not a valid CHANGE_TYPE in insert mode: changes are written to the default stream"
                " of a table with a primary key"
            )
        if len(schema) > _MOST_COLUMNS_OF_CHANGES:
            raise unwritable(f"Tables with active CDC have at most {_MOST_COLUMNS_OF_CHANGES} top-level columns")
        for name in _PSEUDO:
            if name in names and compiled.fields_by_name[name].type != FieldDescriptorProto.TYPE_STRING:
                raise unwritable(f"{name} must be a string")
        lower = {name.lower() for name in names}
        for name in key:
            if name.lower() not in lower:
                raise unwritable(f"The primary key column {name} is missing in the writer's schema")

    def read(self, raw: bytes) -> WrittenRow:
        """Reads a row; raises ValueError with an error message if it is invalid."""
        try:
            message = self._class.FromString(raw)
        except DecodeError as error:
            raise ValueError(f"the row is not a message of the writer's schema: {error}") from error
        if not message.IsInitialized():
            raise ValueError("the row lacks a field that the writer's schema requires")
        row = self._struct.read(message)
        if not self.changes:
            return WrittenRow(row)
        change = message._CHANGE_TYPE  # noqa: SLF001 - a field's name
        if change not in ("UPSERT", "DELETE"):
            raise ValueError(f"{_CHANGE_TYPE} is neither UPSERT nor DELETE")
        return WrittenRow(row, change, self._sections(message))

    def _sections(self, message: Any) -> tuple[int, ...] | None:
        if not (self._sequenced and message.HasField(_SEQUENCE)):
            return None
        text = message._CHANGE_SEQUENCE_NUMBER  # noqa: SLF001 - a field's name
        if not isinstance(text, str) or not _SECTIONS.fullmatch(text):
            raise ValueError(f"{_SEQUENCE} is not one to four sections of 1 to 16 hexadecimal digits")
        return tuple(int(section, 16) for section in text.split("/"))


def _compile(descriptor: DescriptorProto) -> Descriptor:
    file = FileDescriptorProto(name="writer_schema.proto", syntax="proto2")
    file.message_type.add().CopyFrom(descriptor)
    pool = DescriptorPool()
    try:
        pool.Add(file)
        return pool.FindMessageTypeByName(descriptor.name)
    except (KeyError, TypeError) as error:
        raise unwritable(
            f"Invalid proto schema: {error}: the descriptor must be self-contained, of nested types, in proto2"
        ) from error


class _Field(NamedTuple):
    name: str
    column: str
    convert: Convert
    repeated: bool
    required: bool


class _Struct:
    """Reads messages as dicts of a STRUCT or of the whole row; `path` is its name with a dot, empty for the row."""

    def __init__(self, descriptor: Descriptor, columns: Sequence[ColumnDefinition], path: str) -> None:
        known = {column.name.lower(): column for column in columns}
        fields = [field for field in descriptor.fields if path or field.name not in _PSEUDO]
        if extra := [field.name for field in fields if field.name.lower() not in known]:
            raise unwritable(
                f"Schema mismatch due to extra fields in user schema: {path}{extra[0]}",
                StorageCode.SCHEMA_MISMATCH_EXTRA_FIELDS,
            )
        given = {field.name.lower() for field in fields}
        for name, column in known.items():
            if column.mode == "REQUIRED" and name not in given:
                raise unwritable(f"The required field {path}{column.name} is missing in the writer's schema")
        self._path = path
        self._fields = [self._field(field, known[field.name.lower()]) for field in fields]

    def _field(self, field: FieldDescriptor, column: ColumnDefinition) -> _Field:
        repeated = column.mode == "REPEATED"
        name = self._path + column.name
        if is_repeated(field) != repeated:
            raise unwritable(f"The proto field {name} and the column do not agree on being repeated")
        convert: Convert | None
        if field.message_type is not None and column.fields:
            convert = _Struct(field.message_type, column.fields, f"{name}.").read
        else:
            convert = converter(column.type, field.type)
        if convert is None:
            proto = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
            raise unwritable(
                f"The proto field mismatched with BigQuery field at {name}, the proto field type {proto},"
                f" BigQuery field type {column.type}"
            )
        return _Field(field.name, column.name, convert, repeated, column.mode == "REQUIRED")

    def read(self, message: Message) -> Row:
        """Reads a message's fields by column, without those that it does not have."""
        if len(UnknownFieldSet(message)):
            raise ValueError(f"the row has a field {self._path}? that is not in the writer's schema")
        row: Row = {}
        for field in self._fields:
            try:
                if field.repeated:
                    row[field.column] = [field.convert(value) for value in getattr(message, field.name)]
                elif message.HasField(field.name):
                    row[field.column] = field.convert(getattr(message, field.name))
            except _FieldError:
                raise
            except ValueError as error:
                raise _FieldError(f"{self._path}{field.column}: {error}") from error
            if field.required and field.column not in row:
                raise _FieldError(f"{self._path}{field.column}: a required field is missing")
        return row


class _FieldError(ValueError):
    """A value is invalid; the message names its column."""


def is_repeated(field: FieldDescriptor) -> bool:
    """True if a field of a message is a list; before protobuf 6.31 its label says so, which is deprecated since."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
