"""Runs the emulator in a container, by testcontainers, which is imported only when needed.

The official image starts `./gateway_main --hostname 0.0.0.0` as its CMD; a custom image may do so as its ENTRYPOINT. So
the settings are appended to whatever command the image has.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.binary import Emulator, flags
from emulator.official.connection import answers

REPOSITORY = "gcr.io/cloud-spanner-emulator/emulator"
IMAGE_VARIABLE = "SPANNER_EMULATOR_IMAGE"
_DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_DEFAULT_TAG = "1.5.28"
_GRPC_PORT, _HTTP_PORT = 9010, 9020


@contextmanager
def start_container(
    *,
    churn_seconds: int | None = None,
    database_limit: int | None = None,
    image: str | None = None,
    deadline_seconds: float = 60.0,
) -> Iterator[Emulator]:
    """Runs an emulator in a container while the context is open; the settings are those of `start_binary`.

    The image is `image`, or else the environment's SPANNER_EMULATOR_IMAGE, or else any image of the official
    repository that the engine has, or else the official image, which is pulled.

    Raises EmulatorNotFoundError without testcontainers, an engine or an image; EmulatorFailedError if the container
    does not start or does not answer within the deadline.
    """
    settings = ["--hostname", "0.0.0.0", *flags(churn_seconds, database_limit)]  # noqa: S104 - inside a container
    try:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.docker_client import DockerClient, get_docker_host
        from testcontainers.core.exceptions import ContainerStartException
    except ImportError as error:
        raise EmulatorNotFoundError("testcontainers is not installed: pip install docker testcontainers") from error
    try:
        _probe(get_docker_host() or _DEFAULT_SOCKET)
        client = DockerClient().client
        images = client.images
        name = image or os.environ.get(IMAGE_VARIABLE) or _local_image(images.list(REPOSITORY))
        found = images.list(name)
        config = (found[0] if found else images.pull(name)).attrs["Config"]
        client.close()
    except (DockerException, OSError) as error:
        raise EmulatorNotFoundError(f"no Docker engine with an emulator image: {_one_line(error)}") from error
    container = DockerContainer(name).with_exposed_ports(_GRPC_PORT, _HTTP_PORT)
    container = container.with_command([*(config.get("Cmd") or []), *settings])
    try:
        try:
            container.start()
            host = f"{container.get_container_host_ip()}:{container.get_exposed_port(_GRPC_PORT)}"
        except (DockerException, ContainerStartException) as error:
            raise EmulatorFailedError(f"the container of {name} did not start: {_one_line(error)}") from error
        if not answers(host, seconds=deadline_seconds):
            printed = b" ".join(container.get_logs()).decode(errors="replace").strip().splitlines()
            raise EmulatorFailedError(f"the container of {name} did not answer at {host}: {' | '.join(printed[-5:])}")
        yield Emulator(host, "container")
    finally:
        container.stop()


def _probe(engine: str) -> None:
    """Raises OSError if a local engine does not answer: docker's own client would leave a socket open in that case."""
    if engine.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(engine.removeprefix("unix://"))


def _local_image(images: list[object]) -> str:
    for image in images:
        for tag in getattr(image, "tags", ()):
            return str(tag)
    return f"{REPOSITORY}:{_DEFAULT_TAG}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
