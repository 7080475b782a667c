"""Plays Conduit's part towards the plugin by gRPC from Python: what needs no Go is tested without it."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Self

import grpc

from connector.conduit.messages import Acknowledgement, Configuration, Empty, Opening, Stopped
from tests.connector.envelope.conduit import ConduitRecord, of_messages
from tests.integration.commands import environment
from tests.integration.conduit.plugins import CONDUIT
from tests.integration.conduit.schema_registry import SchemaRegistry

_SOURCE = "/connector.v2.SourcePlugin"


class GrpcHost:
    """A plugin's process and a connection to it.

    Args:
        plugin: the executable.
        log: gets what the plugin logs.
        env: added to its environment.
        registry: the schema service, if there is one.
    """

    def __init__(
        self,
        plugin: Path,
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self._decode = registry.decode if registry is not None else None
        variables = {**(registry.environment if registry is not None else {}), **(env or {})}
        with log.open("wb") as err:
            self.process = subprocess.Popen(
                [plugin],
                env=environment(None) | CONDUIT | variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        assert self.process.stdout is not None
        core, protocol, network, address, kind, _ = self.process.stdout.readline().decode().split("|")
        assert (core, protocol, network, kind) == ("1", "2", "unix", "grpc")
        self._channel = grpc.insecure_channel(f"unix:{address}")
        self._acknowledged: Queue[bytes | None] = Queue()
        self._records: Queue[ConduitRecord | grpc.RpcError] = Queue()
        self._run: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=300)
        finally:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def configure(self, settings: dict[str, str]) -> None:
        self._call("Configure", Configuration(config=settings))

    def open(self, position: bytes = b"") -> None:
        self._call("Open", Opening(position=position))

    def run(self) -> None:
        call = self._channel.stream_stream(
            f"{_SOURCE}/Run", request_serializer=Acknowledgement.SerializeToString, response_deserializer=bytes
        )
        self._run = call(self._requests())
        Thread(target=self._receive, daemon=True).start()

    def records(self, count: int) -> list[ConduitRecord]:
        """Takes and acknowledges the next records.

        Raises:
            grpc.RpcError: the stream has ended with it.
        """
        found = []
        for _ in range(count):
            record = self._records.get(timeout=300)
            if isinstance(record, grpc.RpcError):
                raise record
            self._acknowledged.put(record.position)
            found.append(record)
        return found

    def stop(self) -> bytes:
        """Stops the source; returns the position of its last record."""
        found: bytes = self._call("Stop", Empty(), Stopped).last_position
        return found

    def teardown(self) -> None:
        self._acknowledged.put(None)
        self._run.cancel()
        self._call("Teardown", Empty())

    def shut_down(self) -> int:
        """Lets the plugin end; returns its exit code."""
        self._unary("/plugin.GRPCController/Shutdown", Empty(), Empty)
        return self.process.wait(timeout=300)

    def waiting(self) -> list[ConduitRecord]:
        """Takes what has come and was not taken, without acknowledging it."""
        found = []
        while not self._records.empty():
            record = self._records.get()
            assert isinstance(record, ConduitRecord)
            found.append(record)
        return found

    def _requests(self) -> Iterator[Any]:
        while (position := self._acknowledged.get()) is not None:
            yield Acknowledgement(ack_positions=[position])

    def _receive(self) -> None:
        try:
            for message in self._run:
                for record in of_messages(message, tag=b"\x0a", decode=self._decode):
                    self._records.put(record)
        except grpc.RpcError as error:
            self._records.put(error)

    def _call(self, method: str, request: Any, answer: Any = Empty) -> Any:
        return self._unary(f"{_SOURCE}/{method}", request, answer)

    def _unary(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return call(request, timeout=300)
