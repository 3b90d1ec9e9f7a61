"""Fake `nvidia.com/gpu` devices: what the kubelet counts, and pods ask for, without a driver or a card.

Speaks the kubelet's device plugin interface, v1beta1. In a machine of a cloud the agent runs it; in others it is
started as `python -m twin.nodes.device_plugin <how many>`.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Protocol

import grpc
from google.protobuf.message import Message

from twin.nodes.messages import STRING, Messages

FOLDER = Path("/var/lib/kubelet/device-plugins")  # the kubelet's own constant
KUBELET = FOLDER / "kubelet.sock"
ENDPOINT = "everstep-gpu.sock"
GPU = "nvidia.com/gpu"
PACKAGE = "v1beta1"
VERSION = "v1beta1"
LOOK_SECONDS = 1.0

# A map travels as repeated pairs of key and value.
MESSAGE = Messages(
    PACKAGE,
    {
        "Empty": (),
        "DevicePluginOptions": (),
        "RegisterRequest": (
            ("version", 1, STRING, False),
            ("endpoint", 2, STRING, False),
            ("resource_name", 3, STRING, False),
        ),
        "Device": (("ID", 1, STRING, False), ("health", 2, STRING, False)),
        "ListAndWatchResponse": (("devices", 1, "Device", True),),
        "ContainerAllocateRequest": (("devices_ids", 1, STRING, True),),
        "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest", True),),
        "Variable": (("key", 1, STRING, False), ("value", 2, STRING, False)),
        "ContainerAllocateResponse": (("envs", 1, "Variable", True),),
        "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse", True),),
    },
)
new = MESSAGE.new


class ContainerAllocateRequest(Protocol):
    """What one container is to be given."""

    devices_ids: Sequence[str]


class AllocateRequest(Protocol):
    """What the containers of a pod are to be given."""

    container_requests: Sequence[ContainerAllocateRequest]


class Plugin:
    """The devices of one machine."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.stopped = threading.Event()

    def options(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Say that nothing needs to be done before a container starts."""
        return new("DevicePluginOptions")

    def list_and_watch(
        self, _request: Message, _context: grpc.ServicerContext
    ) -> Iterator[Message]:
        """Name the devices once, since they never change, and keep the stream open: its end means gone."""
        devices = [new("Device", ID=f"gpu-{i}", health="Healthy") for i in range(self._count)]
        yield new("ListAndWatchResponse", devices=devices)
        self.stopped.wait()

    def allocate(self, request: AllocateRequest, _context: grpc.ServicerContext) -> Message:
        """Tell each container its devices the way NVIDIA's plugin does."""
        return new(
            "AllocateResponse",
            container_responses=[
                new(
                    "ContainerAllocateResponse",
                    envs=[
                        new(
                            "Variable",
                            key="NVIDIA_VISIBLE_DEVICES",
                            value=",".join(container.devices_ids),
                        )
                    ],
                )
                for container in request.container_requests
            ],
        )

    def handlers(self) -> "grpc.GenericRpcHandler[Message, Message]":  # a generic in its stubs only
        """Return the service as the kubelet calls it."""
        return grpc.method_handlers_generic_handler(
            f"{PACKAGE}.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self.options,
                    MESSAGE["Empty"].FromString,
                    MESSAGE["DevicePluginOptions"].SerializeToString,
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self.list_and_watch,
                    MESSAGE["Empty"].FromString,
                    MESSAGE["ListAndWatchResponse"].SerializeToString,
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self.allocate,
                    MESSAGE["AllocateRequest"].FromString,
                    MESSAGE["AllocateResponse"].SerializeToString,
                ),
            },
        )


@contextlib.contextmanager
def serving(plugin: Plugin, folder: Path = FOLDER) -> Iterator[None]:
    """Serve the devices on their socket while the block runs."""
    socket = folder / ENDPOINT
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        plugin.stopped.set()
        server.stop(grace=None).wait()


def register(kubelet: Path = KUBELET) -> None:
    """Tell the kubelet of us.

    Raises:
        grpc.RpcError: it did not listen.
    """
    # Without an authority of a host's form the kubelet's server refuses what comes over a socket file.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{kubelet}", options=options) as channel:
        call = channel.unary_unary(
            f"/{PACKAGE}.Registration/Register",
            request_serializer=MESSAGE["RegisterRequest"].SerializeToString,
            response_deserializer=MESSAGE["Empty"].FromString,
        )
        call(
            new("RegisterRequest", version=VERSION, endpoint=ENDPOINT, resource_name=GPU),
            timeout=5,
        )


def offer(count: int, wanted: Callable[[], bool] = lambda: True) -> None:
    """Offer the devices while they are wanted, to each kubelet anew: one that restarts has forgotten its plugins."""
    pause = threading.Event()
    while wanted():
        if (known := _identity(KUBELET)) is None:
            pause.wait(LOOK_SECONDS)
            continue
        try:
            with serving(Plugin(count)):
                register()
                while _identity(KUBELET) == known and wanted():
                    pause.wait(LOOK_SECONDS)
        except grpc.RpcError as error:
            print(f"cannot register: {error}", flush=True)
            pause.wait(LOOK_SECONDS)


def _identity(socket: Path) -> tuple[int, int] | None:
    """Return what tells a kubelet's socket from the one of its successor."""
    try:
        stat = socket.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_ctime_ns


if __name__ == "__main__":
    offer(int(sys.argv[1]))
