"""Connects to an emulator by its address, without environment variables.

google-cloud-spanner finds an emulator by SPANNER_EMULATOR_HOST, one for the whole process. Tests use several, so
here the host is an argument. The client's built-in metrics, which would be sent to Cloud Monitoring, are off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc
from google.cloud import spanner
from google.cloud.spanner_admin_instance_v1 import ListInstanceConfigsRequest

from connector.proxies import DIRECT_CHANNEL
from connector.spanner.emulators import EmulatorClient

_LIST_CONFIGS = "/google.spanner.admin.instance.v1.InstanceAdmin/ListInstanceConfigs"


def connect(host: str, project: str) -> spanner.Client:
    """Creates a client of the emulator at `host` ("127.0.0.1:9010") that needs no credentials and sends no metrics.

    It connects at the first use, which is when an emulator that does not answer raises an error.
    """
    return EmulatorClient(host, project)


def answers(host: str, *, seconds: float, while_true: Callable[[], bool] = lambda: True) -> bool:
    """Returns whether an emulator answers a real call at `host` within `seconds`.

    Stops waiting once `while_true` returns false, for example because the emulator's process has ended.
    """
    deadline = time.monotonic() + seconds
    request = ListInstanceConfigsRequest.serialize(ListInstanceConfigsRequest(parent="projects/readiness"))
    # A call that waits, and not grpc's future of a ready channel: the thread of that may outlive the channel.
    options = [*DIRECT_CHANNEL, ("grpc.initial_reconnect_backoff_ms", 100)]
    options += [("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 250)]
    with grpc.insecure_channel(host, options=options) as channel:
        call = channel.unary_unary(_LIST_CONFIGS)
        while while_true() and (left := deadline - time.monotonic()) > 0:
            try:
                call(request, timeout=min(left, 1.0), wait_for_ready=True)
            except grpc.RpcError:
                time.sleep(min(0.05, left))
            else:
                return True
    return False
