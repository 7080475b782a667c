"""Conduit's schema service, for tests without Go: as its protocol says, with its own reading of it.

It is written from proto/connutils/v1/schema.proto and proto/schema/v1/schema.proto, and keeps what Conduit's built-in
registry keeps: a schema that a subject has already keeps its version.
"""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import fastavro
import grpc

from tests.connector.envelope.conduit import Data

TOKEN, CONNECTOR = '{"value":"t","connector_id":"pipeline:source"}', "pipeline:source"
_AVRO = 1


@dataclass
class SchemaRegistry:
    """A registry that is served.

    Attributes:
        target: its address.
        schemas: the versions of each subject.
        requests: the subjects that were asked to be registered, one for each call.
        decoded: what was decoded: ``key``, ``before`` and ``after`` of records.
        failure: ends each call, if it is set.
    """

    target: str = ""
    schemas: dict[str, list[bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    decoded: list[str] = field(default_factory=list)
    failure: tuple[grpc.StatusCode, str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Conduit's variables for a plugin that may use it."""
        return {
            "CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET": self.target,
            "CONDUIT_CONNECTOR_TOKEN": TOKEN,
            "CONDUIT_CONNECTOR_ID": CONNECTOR,
            "http_proxy": "http://127.0.0.1:1",  # the registry is on this machine
            "no_proxy": "",
        }

    def create(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """``CreateSchema``."""
        if self.failure is not None:
            context.abort(*self.failure)
        assert dict(context.invocation_metadata())["conduit-connector-token"] == TOKEN
        fields = _fields(request)
        subject, schema = fields[1].decode(), fields[3]
        assert fields[2] == _AVRO
        fastavro.parse_schema(json.loads(schema))
        self.requests.append(subject)
        versions = self.schemas.setdefault(subject, [])
        if schema not in versions:
            versions.append(schema)
        version = versions.index(schema) + 1
        created = _sized(1, subject.encode()) + bytes([2 << 3, version]) + bytes([4 << 3, _AVRO]) + _sized(5, schema)
        return _sized(1, created)

    def decode(self, part: str, metadata: dict[str, str], data: bytes) -> Data:
        """Decodes a key or a payload as the middleware of a destination does, by the schema that the metadata name."""
        name = "key" if part == "key" else "payload"
        versions = self.schemas[metadata[f"opencdc.{name}.schema.subject"]]
        schema = json.loads(versions[int(metadata[f"opencdc.{name}.schema.version"]) - 1])
        stream = io.BytesIO(data)
        row: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
        assert stream.read() == b""
        self.decoded.append(part)
        return dict(row)


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Serves a registry."""
    registry = SchemaRegistry()
    server = grpc.server(ThreadPoolExecutor(2))
    method = grpc.unary_unary_rpc_method_handler(registry.create)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("connutils.v1.SchemaService", {"CreateSchema": method})]
    )
    registry.target = f"[::]:{server.add_insecure_port('[::]:0')}"  # as Conduit gives it: a port of every address
    server.start()
    try:
        yield registry
    finally:
        server.stop(None).wait()


def _sized(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def _fields(message: bytes) -> dict[int, Any]:
    """The fields of a message by their numbers: integers and bytes."""
    at, out = 0, dict[int, Any]()
    while at < len(message):
        tag, at = _number(message, at)
        value, at = _number(message, at)
        if tag & 7:
            assert tag & 7 == 2
            out[tag >> 3], at = message[at : at + value], at + value
        else:
            out[tag >> 3] = value
    return out


def _number(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at
