"""Fake `nvidia.com/gpu` devices: what the kubelet counts, and pods ask for, without a driver or a card.

Speaks the kubelet's device plugin interface, v1beta1. Its messages are defined here, field by field as far as
a plugin without real devices needs them: a handful of lines instead of a compiler and generated code.

Started in a machine as `python -m twin.nodes.device_plugin <how many>`.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from twin.nodes.machine_config import GPU

FOLDER = Path("/var/lib/kubelet/device-plugins")  # the kubelet's own constant
KUBELET = FOLDER / "kubelet.sock"
ENDPOINT = "everstep-gpu.sock"
PACKAGE = "v1beta1"
VERSION = "v1beta1"
LOOK_SECONDS = 1.0

STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
# message: (field, number, type or message name, repeated)
MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
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
    # A map travels as repeated pairs of key and value.
    "Variable": (("key", 1, STRING, False), ("value", 2, STRING, False)),
    "ContainerAllocateResponse": (("envs", 1, "Variable", True),),
    "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse", True),),
}


def define_messages() -> dict[str, Any]:
    """Return the message classes by name; they come into being at run time and have no static type."""
    file = descriptor_pb2.FileDescriptorProto(
        name="everstep/device_plugin.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number)
            label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
            added.label = descriptor_pb2.FieldDescriptorProto.Label.Value(label)
            if isinstance(kind, str):
                added.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{PACKAGE}.{kind}"
            else:
                added.type = descriptor_pb2.FieldDescriptorProto.Type.ValueType(kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }


MESSAGE = define_messages()


class Plugin:
    """The devices of one machine."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.stopped = threading.Event()

    def options(self, _request: Any, _context: Any) -> Any:
        """Say that nothing needs to be done before a container starts."""
        return MESSAGE["DevicePluginOptions"]()

    def list_and_watch(self, _request: Any, _context: Any) -> Iterator[Any]:
        """Name the devices, once: they never change; then keep the stream open, for its end means gone."""
        devices = [
            MESSAGE["Device"](ID=f"gpu-{index}", health="Healthy") for index in range(self._count)
        ]
        yield MESSAGE["ListAndWatchResponse"](devices=devices)
        self.stopped.wait()

    def allocate(self, request: Any, _context: Any) -> Any:
        """Tell each container its devices the way NVIDIA's plugin does."""
        responses = [
            MESSAGE["ContainerAllocateResponse"](
                envs=[
                    MESSAGE["Variable"](
                        key="NVIDIA_VISIBLE_DEVICES", value=",".join(container.devices_ids)
                    )
                ]
            )
            for container in request.container_requests
        ]
        return MESSAGE["AllocateResponse"](container_responses=responses)

    def handlers(self) -> grpc.GenericRpcHandler:
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
    server.add_insecure_port(f"unix://{socket}")
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
    with grpc.insecure_channel(f"unix://{kubelet}", options=options) as channel:
        call = channel.unary_unary(
            f"/{PACKAGE}.Registration/Register",
            request_serializer=MESSAGE["RegisterRequest"].SerializeToString,
            response_deserializer=MESSAGE["Empty"].FromString,
        )
        call(
            MESSAGE["RegisterRequest"](version=VERSION, endpoint=ENDPOINT, resource_name=GPU),
            timeout=5,
        )


def main(count: int) -> None:
    """Offer the devices for ever, to each kubelet anew: one that restarts has forgotten its plugins."""
    pause = threading.Event()
    while True:
        while (known := _identity(KUBELET)) is None:
            pause.wait(LOOK_SECONDS)
        try:
            with serving(Plugin(count)):
                register()
                while _identity(KUBELET) == known:
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
    main(int(sys.argv[1]))
