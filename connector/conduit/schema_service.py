"""Conduit's schema service: it keeps schemas in Conduit's registry, under a subject, and gives each a version.

Conduit says by environment variables where it is, and the token that the calls of this plugin have. See
``proto/connutils/v1/schema.proto`` of ConduitIO/conduit-connector-protocol.
"""

import json
from dataclasses import dataclass

import grpc

from connector.conduit.handshake import Utilities
from connector.conduit.messages import SchemaCreated, SchemaCreation
from connector.errors import SpannerCdcError

_CREATE = "/connutils.v1.SchemaService/CreateSchema"
_TOKEN = "conduit-connector-token"  # noqa: S105 - the name of the header
_AVRO = 1
_DEADLINE = 30.0
"""Seconds for a schema, connecting to Conduit included."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The name of a schema in the registry."""

    subject: str
    version: int


class SchemaService:
    """A connection to the service, which is established by the first call.

    Args:
        utilities: where it is.
        deadline: seconds for a call.
    """

    def __init__(self, utilities: Utilities, *, deadline: float = _DEADLINE) -> None:
        self._prefix = f"{utilities.connector}:" if utilities.connector else ""
        self._token = utilities.token
        self._deadline = deadline
        options = [("grpc.enable_http_proxy", 0)]  # Conduit is on this machine
        self._channel = grpc.aio.insecure_channel(utilities.target, options=options)
        self._create = self._channel.unary_unary(
            _CREATE, request_serializer=SchemaCreation.SerializeToString, response_deserializer=SchemaCreated.FromString
        )

    async def register(self, name: str, schema: bytes) -> Registered:
        """Registers an Avro schema, unless it is there; its subject is the name after the id of Conduit's connector.

        Raises:
            SpannerCdcError: the service does not register it, or does not respond.
        """
        request = SchemaCreation(subject=self._prefix + name, type=_AVRO, bytes=schema)
        try:
            metadata = ((_TOKEN, self._token),)
            answer = await self._create(request, metadata=metadata, timeout=self._deadline, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise SpannerCdcError(
                f"Conduit's schema service has not registered {name}: {error.code().name}: {self._why(error)}",
                hint=(
                    "Conduit starts the pipeline again, and nothing was skipped. It runs without schemas if"
                    " sdk.schema.extract.key.enabled and sdk.schema.extract.payload.enabled are false."
                ),
            ) from None  # the cause has the token, too, where Conduit refuses it
        return Registered(answer.schema.subject, answer.schema.version)

    def _why(self, error: grpc.aio.AioRpcError) -> str:
        """The service's reason, on one line and without the token, which Conduit quotes where it refuses it."""
        why = error.details() or ""
        quoted = json.dumps(self._token, ensure_ascii=False)[1:-1]
        for secret in filter(None, (quoted, self._token)):
            why = why.replace(secret, "...")
        return " ".join(why.split())

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._channel.close()
