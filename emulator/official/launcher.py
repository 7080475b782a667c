"""Finds a running Spanner emulator or starts one: the environment's, the installed program, or a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from connector.errors import ConfigurationError
from connector.spanner.emulators import PATIENCE, checked_address
from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.binary import Emulator, find_binary, start_binary
from emulator.official.connection import answers
from emulator.official.container import start_container

__all__ = ["HOST_VARIABLE", "Emulator", "EmulatorFailedError", "EmulatorNotFoundError", "find_or_start"]

HOST_VARIABLE = "SPANNER_EMULATOR_HOST"


@contextmanager
def find_or_start(
    *,
    churn_seconds: int | None = None,
    database_limit: int | None = None,
    environment_seconds: float = PATIENCE,
) -> Iterator[Emulator]:
    """Finds or starts an emulator, which runs while the context is open.

    In this order: the one that SPANNER_EMULATOR_HOST names (it keeps running afterwards, and the settings do not apply
    to it), the installed program, a container. The settings are those of `start_binary`.

    Raises EmulatorNotFoundError, with one line that says how to install one, if there is none or if the environment's
    does not answer within `environment_seconds`; EmulatorFailedError if one was found but did not start.
    """
    host = os.environ.get(HOST_VARIABLE)
    if host:
        try:
            checked_address(host, "source")
        except ConfigurationError as error:
            raise EmulatorNotFoundError(f"{HOST_VARIABLE} is {host!r}, which is not HOST:PORT") from error
        if not answers(host, seconds=environment_seconds):
            raise EmulatorNotFoundError(
                f"{HOST_VARIABLE} is {host} and no emulator answers there: start one there or unset {HOST_VARIABLE}"
            )
        yield Emulator(host, "environment")
        return
    try:
        binary = find_binary()
    except EmulatorNotFoundError:
        binary = None
    if binary is not None:
        with start_binary(churn_seconds=churn_seconds, database_limit=database_limit, binary=binary) as emulator:
            yield emulator
        return
    with ExitStack() as stack:
        try:
            emulator = stack.enter_context(start_container(churn_seconds=churn_seconds, database_limit=database_limit))
        except EmulatorNotFoundError as error:
            raise EmulatorNotFoundError(
                "no Spanner emulator: install it with `gcloud components install cloud-spanner-emulator` or the Debian"
                f" package google-cloud-cli-spanner-emulator, or start Docker ({error}), or set {HOST_VARIABLE}"
            ) from error
        yield emulator
