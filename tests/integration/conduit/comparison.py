"""Compares data that was decoded by a schema with structured data, whose numbers are doubles."""

import json
from base64 import b64decode
from typing import Any

import numpy as np
import orjson

from connector.envelope.opencdc import converter
from connector.errors import EventError
from tests.connector.envelope.column_values import simple
from tests.connector.envelope.conduit import Data


def differences(decoded: Data, structured: Data) -> list[tuple[str, Any, Any]]:
    """The columns that differ, with both values."""
    return [
        (name, decoded.get(name), structured.get(name))
        for name in decoded.keys() | structured.keys()
        if name not in decoded or name not in structured or not is_same(decoded[name], structured[name])
    ]


def is_same(decoded: Any, structured: Any) -> bool:
    """True if a decoded value is the one that structured data has, whose numbers are doubles."""
    if isinstance(decoded, list) and isinstance(structured, list):
        return len(decoded) == len(structured) and all(map(is_same, decoded, structured))
    if isinstance(decoded, bytes):
        return decoded == b64decode(structured)
    if isinstance(decoded, int) and not isinstance(decoded, bool):
        return decoded == int(structured)
    if (
        isinstance(decoded, float) and decoded != structured
    ):  # FLOAT32, with all its digits or with those that Go writes
        return decoded in (float(np.float32(structured)), float(str(np.float32(structured))))
    return bool(decoded == structured) or (isinstance(decoded, str) and nested(decoded) == structured)


def nested(text: str) -> Any:
    """The JSON of a text as structured data has it, whose numbers are doubles."""
    try:
        value = converter(simple("JSON"))(text)
    except EventError:
        return None
    return json.loads(orjson.dumps(value), parse_int=float)
