"""The protocol of the device plugin over real sockets."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from cloudtwin.nodes.kubelet import device_plugin
from cloudtwin.nodes.kubelet.device_plugin import MESSAGE, DevicePlugin
from google.protobuf.message import Message


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The path of a socket has at most 107 characters; pytest's folders have longer paths.
    monkeypatch.chdir(tmp_path)
    return Path()


@pytest.fixture
def channel(folder: Path) -> Iterator[grpc.Channel]:
    options = [("grpc.default_authority", "localhost")]
    with (
        device_plugin.serving(DevicePlugin(2), folder),
        grpc.insecure_channel(f"unix:{device_plugin.ENDPOINT}", options=options) as channel,
    ):
        yield channel


def test_the_devices_are_listed_and_the_stream_stays_open(channel: grpc.Channel) -> None:
    call = channel.unary_stream(
        "/v1beta1.DevicePlugin/ListAndWatch",
        request_serializer=MESSAGE["Empty"].SerializeToString,
        response_deserializer=MESSAGE["ListAndWatchResponse"].FromString,
    )(MESSAGE.new("Empty"), timeout=100)

    devices = next(iter(call)).devices
    assert [(device.ID, device.health) for device in devices] == [
        ("gpu-0", "Healthy"),
        ("gpu-1", "Healthy"),
    ]
    threading.Timer(0.3, call.cancel).start()
    with pytest.raises(grpc.RpcError) as error:
        next(iter(call))
    assert error.value.code() is grpc.StatusCode.CANCELLED, (
        "the kubelet removes the devices when the stream ends"
    )


def test_each_container_gets_its_devices_in_its_environment(channel: grpc.Channel) -> None:
    request = MESSAGE.new(
        "AllocateRequest",
        container_requests=[
            MESSAGE.new("ContainerAllocateRequest", devices_ids=["gpu-1", "gpu-0"]),
            MESSAGE.new("ContainerAllocateRequest", devices_ids=[]),
        ],
    )
    response = channel.unary_unary(
        "/v1beta1.DevicePlugin/Allocate",
        request_serializer=MESSAGE["AllocateRequest"].SerializeToString,
        response_deserializer=MESSAGE["AllocateResponse"].FromString,
    )(request, timeout=100)

    environments = [[(e.key, e.value) for e in c.envs] for c in response.container_responses]
    assert environments == [
        [("NVIDIA_VISIBLE_DEVICES", "gpu-1,gpu-0")],
        [("NVIDIA_VISIBLE_DEVICES", "")],
    ]


def test_the_plugin_registers_its_resource_endpoint_and_version(folder: Path) -> None:
    requests: list[Any] = []

    def register(request: Message, _context: grpc.ServicerContext) -> Message:
        requests.append(request)
        return MESSAGE.new("Empty")

    handler = grpc.unary_unary_rpc_method_handler(
        register, MESSAGE["RegisterRequest"].FromString, MESSAGE["Empty"].SerializeToString
    )
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
    )
    server.add_insecure_port("unix:kubelet.sock")
    server.start()
    try:
        device_plugin.register(folder / "kubelet.sock")
    finally:
        server.stop(grace=None).wait()

    assert [(r.version, r.endpoint, r.resource_name) for r in requests] == [
        ("v1beta1", "cloudtwin-gpu.sock", "nvidia.com/gpu")
    ]
