"""Compares the mods of one transaction, as Spanner returns them, with those in the spool. Pure.

Texts of payloads that differ are compared by the values in them: another order of the columns is no difference.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from connector.proof.audit.findings import MOST_MODS, Kind, ModDifference, TransactionFinding
from connector.proof.audit.rows import FIELDS, JSON_FIELDS

Row = Mapping[str, object]
IDENTITY = ("time", "server_transaction_id", "object", "epoch")
"""The fields that :func:`whole` needs."""

_Place = tuple[str, str, int]
"""The identity of a mod in its transaction: table, record sequence, index of the mod."""


def whole(kind: Kind, rows: Sequence[Row], *, epoch: bool) -> TransactionFinding:
    """The finding that all of these rows' transaction is concerned; ``epoch``: they are of the spool."""
    first = rows[0]
    return TransactionFinding(
        kind,
        _int(first["time"]),
        str(first["server_transaction_id"]),
        tuple(sorted({str(row["object"]) for row in rows})),
        len(rows),
        epoch=_int(first["epoch"]) if epoch else None,
    )


def differing(expected: Sequence[Row], found: Sequence[Row]) -> TransactionFinding | None:
    """Compares a transaction's rows in the spool with those that Spanner returns; None if they are equal."""
    wanted, held = _by_place(expected), _by_place(found)
    differences = [
        difference for place in {**wanted, **held} for difference in _of_mod(place, wanted.get(place), held.get(place))
    ]
    kinds = {difference.kind for difference in differences}
    if not differences:
        if list(map(_place, expected)) == list(map(_place, found)):
            return None
        return whole(Kind.ORDER, found, epoch=True)
    return TransactionFinding(
        Kind.TWICE if kinds == {Kind.TWICE} else Kind.DIFFERENT,
        _int(expected[0]["time"]),
        str(expected[0]["server_transaction_id"]),
        tuple(sorted({difference.table for difference in differences})),
        len(differences),
        tuple(differences[:MOST_MODS]),
        _int(found[0]["epoch"]),
    )


def _of_mod(place: _Place, wanted: list[Row] | None, held: list[Row] | None) -> Iterable[ModDifference]:
    """The differences of one mod; there may be several."""
    if held is None or wanted is None:
        yield ModDifference(Kind.MISSING if held is None else Kind.EXTRA, *place)
        return
    if len(held) != len(wanted):
        yield ModDifference(Kind.TWICE if len(held) > len(wanted) else Kind.MISSING, *place)
    pairs = [(wanted[min(at, len(wanted) - 1)], row) for at, row in enumerate(held)]
    fields = sorted({name for one, other in pairs for name in _fields(one, other)}, key=_rank)
    if fields:
        yield ModDifference(Kind.DIFFERENT, *place, tuple(fields))


def _rank(name: str) -> tuple[int, str]:
    return FIELDS.index(name.partition(".")[0]), name


def _fields(wanted: Row, held: Row) -> Iterable[str]:
    """The fields in which two rows differ."""
    for name in FIELDS:
        if wanted[name] == held[name]:
            continue
        if name in JSON_FIELDS:
            yield from _columns(name, wanted[name], held[name])
        else:
            yield name


def _columns(name: str, wanted: object, held: object) -> list[str]:
    """The columns in which the JSON objects in two texts differ, or the field's name if one of them is none."""
    one, other = _object(wanted), _object(held)
    if one is None or other is None:
        return [name]
    return [f"{name}.{column}" for column in {**one, **other} if one.get(column) != other.get(column)]


def _object(text: object) -> dict[str, str] | None:
    """The values of a JSON object by column, each in one canonical rendering."""
    if not isinstance(text, str):
        return None
    try:
        node = json.loads(text)  # not orjson, which rejects integers beyond 64 bits
    except (ValueError, RecursionError):
        return None
    if not isinstance(node, dict):
        return None
    return {column: json.dumps(value, sort_keys=True) for column, value in node.items()}


def _by_place(rows: Sequence[Row]) -> dict[_Place, list[Row]]:
    places: dict[_Place, list[Row]] = {}
    for row in rows:
        places.setdefault(_place(row), []).append(row)
    return places


def _place(row: Row) -> _Place:
    return str(row["object"]), str(row["record_sequence"]), _int(row["mod_index"])


def _int(value: object) -> int:
    return value if isinstance(value, int) else -1
