from concurrent import futures
from pathlib import Path

import grpc
import pytest

from twin.nodes import device_plugin
from twin.nodes.device_plugin import MESSAGE, Plugin, new


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 characters; pytest's are longer
    return Path()


@pytest.fixture
def channel(folder):
    options = [("grpc.default_authority", "localhost")]
    with (
        device_plugin.serving(Plugin(2), folder),
        grpc.insecure_channel(f"unix:{device_plugin.ENDPOINT}", options=options) as channel,
    ):
        yield channel


def test_the_devices_are_named_and_the_stream_stays_open(channel):
    call = channel.unary_stream(
        "/v1beta1.DevicePlugin/ListAndWatch",
        request_serializer=MESSAGE["Empty"].SerializeToString,
        response_deserializer=MESSAGE["ListAndWatchResponse"].FromString,
    )(new("Empty"), timeout=5)

    devices = next(call).devices
    assert [(device.ID, device.health) for device in devices] == [
        ("gpu-0", "Healthy"),
        ("gpu-1", "Healthy"),
    ]
    call.cancel()


def test_each_container_is_told_its_devices(channel):
    request = new(
        "AllocateRequest",
        container_requests=[
            new("ContainerAllocateRequest", devices_ids=["gpu-1", "gpu-0"]),
            new("ContainerAllocateRequest", devices_ids=[]),
        ],
    )
    answer = channel.unary_unary(
        "/v1beta1.DevicePlugin/Allocate",
        request_serializer=MESSAGE["AllocateRequest"].SerializeToString,
        response_deserializer=MESSAGE["AllocateResponse"].FromString,
    )(request, timeout=5)

    told = [[(e.key, e.value) for e in c.envs] for c in answer.container_responses]
    assert told == [
        [("NVIDIA_VISIBLE_DEVICES", "gpu-1,gpu-0")],
        [("NVIDIA_VISIBLE_DEVICES", "")],
    ]


def test_the_kubelet_is_told_resource_endpoint_and_version(folder):
    heard = []

    def listen(request, _context):
        heard.append(request)
        return new("Empty")

    handler = grpc.unary_unary_rpc_method_handler(
        listen, MESSAGE["RegisterRequest"].FromString, MESSAGE["Empty"].SerializeToString
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

    assert [(r.version, r.endpoint, r.resource_name) for r in heard] == [
        ("v1beta1", "everstep-gpu.sock", "nvidia.com/gpu")
    ]
