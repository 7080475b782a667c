"""The digest that stands for a value of a hashed column. Pure.

It is the HMAC-SHA-256 (RFC 2104) of the value's type and text, with the salt as the key: 64 hexadecimal digits. The
salt is the key of the HMAC, and not a prefix of the text, so that nobody can extend a digest without the salt, and no
dictionary of plain SHA-256 sums helps. Whoever has the salt can try values.

The text is the same for equal values of a type, however Spanner writes them:

- BOOL ``true`` or ``false``; INT64 and ENUM decimal digits.
- FLOAT32 and FLOAT64 the shortest digits of the double, without the sign of a zero; NaN is ``nan``.
- NUMERIC the digits without zeros at the end.
- TIMESTAMP the nanoseconds since 1970.
- BYTES and PROTO hexadecimal digits, with or without the padding of base64.
- JSON the text without spaces, with sorted names, numbers as in NUMERIC.
- UUID small letters.
- STRING, DATE, INTERVAL and types that are not known: as they are.
- An ARRAY has of each element ``v``, the bytes of its text in UTF-8, ``:`` and the text; NULL is ``n``.

A value that is not of its type's format is taken as it is: it is hashed in any case. NULL stays NULL.
"""

import hmac
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal

import msgspec
import numpy as np

from connector.core.column_kinds import ColumnKind, SpannerType, type_code
from connector.core.timestamps import parse

ALGORITHM = "sha256"

_EXACT = Context(prec=200_000)
"""More digits than any number of Spanner's has."""

_NULL = b"null"


def _float(text: str) -> str:
    return repr(float(text) + 0.0)


def _float32(text: str) -> str:
    with np.errstate(over="ignore"):
        return repr(float(np.float32(float(text))) + 0.0)


def _number(value: Decimal | int) -> str:
    number = Decimal(value)
    return str(number.normalize(_EXACT)) if number.is_finite() and number else str(number if number else 0)


def _bytes(text: str) -> str:
    digits = text.rstrip("=")
    return b64decode(digits + "=" * (-len(digits) % 4), validate=True).hex()


def _json(text: str) -> str:
    return _canonical(json.loads(text, parse_int=Decimal, parse_float=Decimal))


def _canonical(node: object) -> str:
    """JSON without spaces, with sorted names."""
    if isinstance(node, dict):
        members = ",".join(f"{json.dumps(name)}:{_canonical(node[name])}" for name in sorted(node))
        return f"{{{members}}}"
    if isinstance(node, list):
        return f"[{','.join(map(_canonical, node))}]"
    return _number(node) if isinstance(node, Decimal) else json.dumps(node)


_TEXTS: Mapping[ColumnKind, Callable[[str], str]] = {
    ColumnKind.INT64: lambda text: str(int(text)),
    ColumnKind.ENUM: lambda text: str(int(text)),
    ColumnKind.FLOAT32: _float32,
    ColumnKind.FLOAT64: _float,
    ColumnKind.NUMERIC: lambda text: _number(Decimal(text)),
    ColumnKind.PG_NUMERIC: lambda text: _number(Decimal(text)),
    ColumnKind.TIMESTAMP: lambda text: str(parse(text)),
    ColumnKind.BYTES: _bytes,
    ColumnKind.PROTO: _bytes,
    ColumnKind.JSON: _json,
    ColumnKind.UUID: str.lower,
}
"""Values of other kinds have one text."""

_strings = msgspec.json.Decoder(str)
_elements = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Digester:
    """Makes the digests of a column's values.

    Args:
        type_json: the column's type, as change records have it.
        salt: the key.
    """

    type_json: str
    salt: bytes = field(repr=False)
    _type: SpannerType = field(init=False)
    _prefix: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_type", SpannerType.parse(self.type_json))
        object.__setattr__(self, "_prefix", f"{type_code(self.type_json)}\n".encode())

    def digest(self, value: bytes) -> bytes:
        """The JSON text that stands for a value: a string with the digest, or null.

        Args:
            value: JSON, as Spanner encodes the type's values.

        Raises:
            ValueError: it is not JSON.
        """
        value = value.strip()
        if value == _NULL:
            return _NULL
        message = self._prefix + self._text(value).encode(errors="surrogatepass")
        return b'"%b"' % hmac.digest(self.salt, message, ALGORITHM).hex().encode()

    def _text(self, value: bytes) -> str:
        if not self._type.is_array or value[:1] != b"[":
            return _text(self._type.kind, value)
        return "".join(map(self._element, _elements.decode(value)))

    def _element(self, raw: msgspec.Raw) -> str:
        value = bytes(raw).strip()
        if value == _NULL:
            return "n"
        text = _text(self._type.kind, value)
        return f"v{len(text.encode(errors='surrogatepass'))}:{text}"


def _text(kind: ColumnKind, value: bytes) -> str:
    text = _strings.decode(value) if value[:1] == b'"' else value.decode()
    convert = _TEXTS.get(kind)
    if convert is None:
        return text
    try:
        return convert(text)
    except (ArithmeticError, RecursionError, ValueError):
        return text


def fingerprint(salt: bytes) -> str:
    """Shows whether two salts are the same, and neither of them: 16 hexadecimal digits, keyed with the salt."""
    return hmac.digest(salt, b"fingerprint of a salt of spanner-cdc", ALGORITHM).hex()[:16]
