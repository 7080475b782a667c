"""The digest of a value depends on its type, its value and the salt, and not on how Spanner writes it."""

import hashlib
import hmac

import pytest

from connector.core.column_kinds import ColumnKind
from connector.core.masking.digests import Digester, fingerprint
from tests.connector.spanner.snapshot.encoded import CASES
from tests.spark_sink.column_types import TYPE_OBJECTS

SALT = b"a salt of the tests"


def digest(type_json: str, value: str, salt: bytes = SALT) -> str:
    return Digester(type_json, salt).digest(value.encode()).decode()


def of_kind(kind: ColumnKind, value: str) -> str:
    return digest(TYPE_OBJECTS[kind], value)


def array_of(kind: ColumnKind) -> str:
    return f'{{"array_element_type":{TYPE_OBJECTS[kind]},"code":"ARRAY"}}'


def test_a_digest_is_the_hmac_of_type_and_text_so_that_others_can_compute_it() -> None:
    expected = hmac.new(SALT, "STRING\nnaïve".encode(), hashlib.sha256).hexdigest()
    assert digest('{"code":"STRING"}', '"na\\u00efve"') == f'"{expected}"'
    elements = hmac.new(SALT, b"ARRAY<INT64>\nv2:10nv1:7", hashlib.sha256).hexdigest()
    assert digest(array_of(ColumnKind.INT64), '["10", null, "7"]') == f'"{elements}"'


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (ColumnKind.INT64, '"7"', "7"),
        (ColumnKind.INT64, '"7"', '"007"'),
        (ColumnKind.FLOAT64, "1", "1.0"),
        (ColumnKind.FLOAT64, "0.0", "-0.0"),
        (ColumnKind.FLOAT32, "0.1", "0.10000000149011612"),
        (ColumnKind.NUMERIC, '"1.50"', '"1.5"'),
        (ColumnKind.NUMERIC, '"-0"', '"0.000"'),
        (ColumnKind.PG_NUMERIC, '"100"', '"1E2"'),
        (ColumnKind.TIMESTAMP, '"2026-01-02T03:04:05Z"', '"2026-01-02T03:04:05.000000Z"'),
        (ColumnKind.TIMESTAMP, '"2026-01-02T03:04:05Z"', '"2026-01-02T04:04:05+01:00"'),
        (ColumnKind.STRING, '"a\\u0062"', ' "ab" '),
        (ColumnKind.JSON, '"{\\"a\\":1,\\"b\\":2.50}"', '"{\\"b\\":2.5, \\"a\\":1}"'),
        (ColumnKind.JSON, '"{\\"a\\":1}"', '{"a":1}'),
        (ColumnKind.BYTES, '"AAE="', '"AAE"'),
        (ColumnKind.PROTO, '"AA=="', '"AA"'),
        (ColumnKind.UUID, '"0F8FAD5B-D9CB-469F-A165-70867728950E"', '"0f8fad5b-d9cb-469f-a165-70867728950e"'),
    ],
)
def test_equal_values_of_a_type_have_equal_digests_however_they_are_written(
    kind: ColumnKind, one: str, other: str
) -> None:
    assert of_kind(kind, one) == of_kind(kind, other)


@pytest.mark.parametrize("kind", ColumnKind)
def test_the_digest_of_every_kind_hides_the_value_and_null_stays_null(kind: ColumnKind) -> None:
    import orjson

    texts = [orjson.dumps(value).decode() for value, _ in CASES[kind]]
    digests = {of_kind(kind, text) for text in texts}
    assert len(digests) == len(texts)
    assert all(len(one) == 66 for one in digests)
    assert of_kind(kind, "null") == "null"
    assert digest(array_of(kind), "null") == "null"
    arrays = {digest(array_of(kind), f"[{text},null]") for text in texts}
    assert len(arrays) == len(texts)
    assert all(len(one) == 66 for one in arrays)


@pytest.mark.parametrize("kind", ColumnKind)
@pytest.mark.parametrize("value", ['"not of its type"', "[]", '{"a":"b"}', "true", "1e999", '"\\u00e4"'])
def test_a_value_that_is_not_of_its_type_is_hashed_as_it_is(kind: ColumnKind, value: str) -> None:
    assert len(of_kind(kind, value)) == 66
    assert len(digest(array_of(kind), value)) == 66


def test_another_type_or_salt_gives_another_digest() -> None:
    found = {digest(f'{{"code":"{code}"}}', '"7"') for code in ("INT64", "STRING", "NUMERIC")}
    assert len({*found, digest('{"code":"INT64"}', '"7"', SALT + b"2")}) == 4


def test_elements_of_arrays_keep_their_borders() -> None:
    strings = array_of(ColumnKind.STRING)
    texts = ['["ab"]', '["a","b"]', '["av1:b"]', "[]", "[null]", '["n"]', '[""]']
    assert len({digest(strings, text) for text in texts}) == len(texts)


def test_a_fingerprint_distinguishes_salts_and_no_text_has_the_salt() -> None:
    assert fingerprint(SALT) == fingerprint(SALT)
    assert fingerprint(SALT) != fingerprint(SALT + b"2")
    assert SALT.decode() not in repr(Digester('{"code":"INT64"}', SALT))
