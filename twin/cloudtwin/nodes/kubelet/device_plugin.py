"""Simulated `nvidia.com/gpu` devices that the kubelet counts and pods request, without a driver or a card.

It implements the kubelet's device plugin interface, v1beta1. On a machine of a simulated cloud's pool, the
machine's agent (`nodes.machine.agent`) runs it. On other machines, the init process starts it as
`python -m cloudtwin.nodes.kubelet.device_plugin COUNT`.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import grpc
from google.protobuf.message import Message

from cloudtwin.nodes.kubelet.grpc_server import Methods, handler, listening
from cloudtwin.nodes.kubelet.messages import STRING, Messages
from cloudtwin.nodes.model import GPU_RESOURCE

FOLDER = Path("/var/lib/kubelet/device-plugins")  # a constant of the kubelet
KUBELET = FOLDER / "kubelet.sock"
ENDPOINT = "cloudtwin-gpu.sock"
PACKAGE = "v1beta1"
VERSION = "v1beta1"
KUBELET_POLL_SECONDS = 1.0

# A map is encoded as repeated pairs of key and value.
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


class ContainerAllocateRequest(Protocol):
    """Devices of one container."""

    devices_ids: Sequence[str]


class AllocateRequest(Protocol):
    """Devices of a pod's containers."""

    container_requests: Sequence[ContainerAllocateRequest]


class DevicePlugin:
    """The devices of one machine."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.stopped = threading.Event()

    def options(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Return no options: no call is needed before a container starts."""
        return MESSAGE.new("DevicePluginOptions")

    def list_and_watch(
        self, _request: Message, _context: grpc.ServicerContext
    ) -> Iterator[Message]:
        """List the devices once, since they never change, and keep the stream open: its end removes them."""
        devices = [
            MESSAGE.new("Device", ID=f"gpu-{i}", health="Healthy") for i in range(self._count)
        ]
        yield MESSAGE.new("ListAndWatchResponse", devices=devices)
        self.stopped.wait()

    def allocate(self, request: AllocateRequest, _context: grpc.ServicerContext) -> Message:
        """Return for each container the variable that NVIDIA's plugin sets."""
        return MESSAGE.new(
            "AllocateResponse",
            container_responses=[
                MESSAGE.new(
                    "ContainerAllocateResponse",
                    envs=[
                        MESSAGE.new(
                            "Variable",
                            key="NVIDIA_VISIBLE_DEVICES",
                            value=",".join(container.devices_ids),
                        )
                    ],
                )
                for container in request.container_requests
            ],
        )


@contextlib.contextmanager
def serving(plugin: DevicePlugin, folder: Path = FOLDER) -> Iterator[None]:
    """Serve the devices on their socket while the block runs."""
    empty = MESSAGE["Empty"]
    methods: Methods = {
        "GetDevicePluginOptions": (plugin.options, empty),
        "Allocate": (plugin.allocate, MESSAGE["AllocateRequest"]),
    }
    streams: Methods = {"ListAndWatch": (plugin.list_and_watch, empty)}
    service = handler(f"{PACKAGE}.DevicePlugin", methods, streams)
    with listening([service], folder / ENDPOINT):
        try:
            yield
        finally:
            plugin.stopped.set()


def register(kubelet: Path = KUBELET) -> None:
    """Register with the kubelet.

    Raises:
        grpc.RpcError: the kubelet does not listen.
    """
    # The kubelet's server refuses calls over a socket file whose authority is not a host name.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{kubelet}", options=options) as channel:
        call = channel.unary_unary(
            f"/{PACKAGE}.Registration/Register",
            request_serializer=MESSAGE["RegisterRequest"].SerializeToString,
            response_deserializer=MESSAGE["Empty"].FromString,
        )
        call(
            MESSAGE.new(
                "RegisterRequest", version=VERSION, endpoint=ENDPOINT, resource_name=GPU_RESOURCE
            ),
            timeout=5,
        )


def offer(count: int, is_needed: Callable[[], bool] = lambda: True) -> None:
    """Offer the devices while `is_needed` returns True; register again when the kubelet has restarted."""
    pause = threading.Event()
    while is_needed():
        if (identity := _identity(KUBELET)) is None:
            pause.wait(KUBELET_POLL_SECONDS)
            continue
        try:
            with serving(DevicePlugin(count)):
                register()
                while _identity(KUBELET) == identity and is_needed():
                    pause.wait(KUBELET_POLL_SECONDS)
        except grpc.RpcError as error:
            print(f"cannot register: {error}", flush=True)
            pause.wait(KUBELET_POLL_SECONDS)


def _identity(socket: Path) -> tuple[int, int] | None:
    """Return an identity of a kubelet's socket that changes when the kubelet restarts; None without a socket."""
    try:
        stat = socket.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_ctime_ns


if __name__ == "__main__":
    offer(int(sys.argv[1]))
