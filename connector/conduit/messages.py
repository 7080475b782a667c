"""The messages of Conduit's connector protocol, version 2, without generated code.

They are defined by ``proto/connector/v2`` and ``proto/connutils/v1`` of ConduitIO/conduit-connector-protocol, and by
``proto/config/v1`` and ``proto/schema/v1`` of ConduitIO/conduit-commons. What is sent has the numbers of fields, and no
names: here each message has a short name of its own, and an enum is an integer.
"""

from collections.abc import Iterable, Mapping

from connector.core.message_classes import DescribedField, message_classes
from connector.envelope.opencdc import OpenCdcRecord
from connector.envelope.opencdc_protobuf import EncodedRecord, delimited

_MESSAGES: Mapping[str, Mapping[str, DescribedField]] = {
    "Empty": {},
    "Configuration": {"config": (1, "map string")},
    "Opening": {"position": (1, "bytes")},
    "Acknowledgement": {"ack_positions": (1, "repeated bytes")},
    "Stopped": {"last_position": (1, "bytes")},
    "Validation": {"type": (1, "int32"), "value": (2, "string")},
    "Parameter": {
        "default": (1, "string"),
        "description": (2, "string"),
        "type": (3, "int32"),
        "validations": (4, "repeated Validation"),
    },
    "Specification": {
        "name": (1, "string"),
        "summary": (2, "string"),
        "description": (3, "string"),
        "version": (4, "string"),
        "author": (5, "string"),
        "source_params": (7, "map Parameter"),
    },
    "Specified": {"specification": (1, "Specification")},
    "SchemaCreation": {"subject": (1, "string"), "type": (2, "int32"), "bytes": (3, "bytes")},
    "Schema": {"subject": (1, "string"), "version": (2, "int32")},
    "SchemaCreated": {"schema": (1, "Schema")},
}
"""The fields of each message: number and type."""

_RECORDS = b"\x0a"
"""The tag of ``records`` in ``Source.Run.Response``: field 1, a message after its length."""


_CLASSES = message_classes(_MESSAGES)
Empty = _CLASSES["Empty"]
Configuration = _CLASSES["Configuration"]
Opening = _CLASSES["Opening"]
Acknowledgement = _CLASSES["Acknowledgement"]
Stopped = _CLASSES["Stopped"]
Specified = _CLASSES["Specified"]
SchemaCreation = _CLASSES["SchemaCreation"]
SchemaCreated = _CLASSES["SchemaCreated"]


def records_message(records: Iterable[OpenCdcRecord | EncodedRecord]) -> bytes:
    """``Source.Run.Response`` with these records."""
    return b"".join(_RECORDS + delimited(record) for record in records)
