"""Records with schemas, beside a registry that counts what it is asked."""

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import fastavro
import orjson
import pytest

from connector.conduit.schema_encoder import SchemaEncoder
from connector.conduit.schema_service import Registered, SchemaService
from connector.conduit.settings import Schemas
from connector.core.changes import Changes
from connector.core.records import DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.opencdc_protobuf import Data, EncodedRecord
from tests.connector.builders import column, record

LONGEST = 2**20
"""Bytes of the longest text that Conduit's decoder reads; it was asked."""


class Counted(SchemaService):
    """A registry in memory."""

    def __init__(self) -> None:
        self.versions: list[tuple[str, bytes]] = []
        self.calls = 0

    async def register(self, name: str, schema: bytes) -> Registered:
        self.calls += 1
        if (name, schema) not in self.versions:
            self.versions.append((name, schema))
        return Registered(name, self.versions.index((name, schema)) + 1)

    def row(self, record: EncodedRecord, part: str, data: Data | None) -> Any:
        """The row that a destination decodes."""
        assert isinstance(data, bytes)
        name = record.metadata[f"opencdc.{part}.schema.subject"]
        subject, schema = self.versions[int(record.metadata[f"opencdc.{part}.schema.version"]) - 1]
        assert subject == name
        return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(json.loads(schema)), None)


class Encoding:
    """An encoder for one message after another."""

    def __init__(self) -> None:
        self.registry, self.service = SchemaRegistry(), Counted()
        self._encoder = SchemaEncoder(self.registry, self.service, Schemas(keys=True, payloads=True))
        source = Source("p", "i", "d", "s", "d")
        self._builder = EnvelopeBuilder(source, stream_name=None, read_method="spanner-cdc")

    def of(self, records: Sequence[DataChangeRecord]) -> list[EncodedRecord]:
        return asyncio.run(self._encoder.records(self._builder.build(Changes.of(records), self.registry, 1)))

    def one(self, new: dict[str, object], **changed: Any) -> EncodedRecord:
        (found,) = self.of([row(new, **changed)])
        return found


def row(new: dict[str, object], **changed: Any) -> DataChangeRecord:
    """A record of a row with the key 1 and these values."""
    types = (column("Id", "INT64", 1, key=True), *(column(name, ordinal=at) for at, name in enumerate(new, 2)))
    return record(**{"column_types": types, "mods": (Mod('{"Id":"1"}', orjson.dumps(new).decode(), "{}"),)} | changed)


@pytest.mark.parametrize("types", [(), (column("Id", "INT64", 1, key=True), column("A", "BYTES", 2))])
def test_a_value_that_conduits_decoder_refuses_for_its_length_leaves_the_row_structured(types: tuple[Any, ...]) -> None:
    encoding = Encoding()
    given = {"column_types": types} if types else {}
    for size in (LONGEST, LONGEST + 1):
        text = b64encode(bytes(size)).decode() if types else "x" * size
        found = encoding.one({"A": text}, **given)
        assert isinstance(found.after, bytes) == (size == LONGEST)
        assert "opencdc.payload.schema.version" in found.metadata
        if size > LONGEST:
            assert found.after == {"Id": 1, "A": text}
        assert encoding.service.row(found, "key", found.key) == {"Id": 1}


def test_a_column_that_appears_and_one_that_changes_its_type_are_other_versions_and_no_value_changes() -> None:
    encoding, seen = Encoding(), []
    news: list[tuple[dict[str, object], str]]
    news = [({"A": "1"}, "STRING"), ({"A": "1"}, "INT64"), ({"A": None, "B": "b"}, "INT64")]
    for new, code in news:
        types = (column("Id", "INT64", 1, key=True), column("A", code, 2), column("B", "STRING", 3))
        found = encoding.one(new, column_types=types[: len(new) + 1])
        seen.append(
            (found.metadata["opencdc.payload.schema.version"], encoding.service.row(found, "payload", found.after))
        )
    assert [values for _, values in seen] == [{"Id": 1, "A": "1"}, {"Id": 1, "A": 1}, {"Id": 1, "A": None, "B": "b"}]
    assert len({version for version, _ in seen}) == 3


def test_a_delete_without_old_values_has_the_schema_of_its_key_alone() -> None:
    encoding = Encoding()
    found = encoding.one({}, mod_type="DELETE")
    assert (found.before, found.after) == (None, None)
    assert encoding.service.row(found, "key", found.key) == {"Id": 1}
    assert not any(name.startswith("opencdc.payload.") for name in found.metadata)


def test_a_schema_is_registered_once_for_rows_with_the_same_columns() -> None:
    encoding = Encoding()
    for _ in range(3):
        encoding.of([row({"A": "a"}), row({"A": None})])
    assert encoding.service.calls == 2  # the key's and the payload's


@pytest.mark.long
def test_wide_rows_with_ever_other_columns_do_not_fill_memory() -> None:
    """A schema that was forgotten is registered again, and keeps its version."""
    encoding = Encoding()
    names = [f"c{at}" for at in range(1000)]
    types = (column("Id", "INT64", 1, key=True), *(column(name, ordinal=at) for at, name in enumerate(names, 2)))
    new = dict.fromkeys(names)

    def without(omitted: Sequence[str]) -> list[EncodedRecord]:
        rows = [row({name: None for name in new if name != each}, column_types=types) for each in omitted]
        return encoding.of(rows)

    (first,) = without(names[:1])
    for at in range(1, 251, 50):
        without(names[at : at + 50])
    before = encoding.service.calls
    (again,) = without(names[:1])
    assert encoding.service.calls == before + 1
    assert first.metadata == again.metadata
