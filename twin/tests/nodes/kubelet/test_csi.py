"""The protocol of the storage plugin over real sockets; `machine/test_cloud_machines.py` tests mounts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cloudtwin.nodes.kubelet import csi, csi_drivers
from cloudtwin.nodes.kubelet.csi import CSI, REGISTRATION, CsiPlugin
from google.protobuf.message import Message

NODE_SERVICE, REGISTRATION_SERVICE = "/csi.v1.Node/", "/pluginregistration.Registration/"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CsiPlugin]:
    # The path of a socket has at most 107 characters; pytest's folders have longer paths.
    monkeypatch.chdir(tmp_path)
    plugin = CsiPlugin(csi_drivers.FSX, "gpu-0", tmp_path / "account", tmp_path / "shared")
    with csi.serving(plugin, Path()):
        yield plugin


def call(method: str, request: Message, response: type[Message], socket: Path) -> Any:
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        rpc = channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return rpc(request, timeout=100)


def call_node(method: str, name: str, **fields: object) -> Any:
    request = CSI.new(name, **fields)
    response = {"NodeGetInfo": "NodeGetInfoResponse"}.get(method, "Empty")
    return call(
        NODE_SERVICE + method, request, CSI[response], csi.socket_of(csi_drivers.FSX, Path())
    )


def call_registration(method: str, request: Message, response: str) -> Any:
    socket = csi.registration_of(csi_drivers.FSX, Path())
    return call(REGISTRATION_SERVICE + method, request, REGISTRATION[response], socket)


def test_the_registration_contains_the_endpoint_of_the_driver(plugin: CsiPlugin) -> None:
    info = call_registration("GetInfo", REGISTRATION.new("Empty"), "PluginInfo")

    assert (info.type, info.name) == ("CSIPlugin", "fsx.csi.aws.com")
    assert info.endpoint == "/var/lib/kubelet/plugins/fsx.csi.aws.com/csi.sock"
    assert list(info.supported_versions) == ["1.0.0"]


@pytest.mark.parametrize("is_registered", [True, False])
def test_the_driver_is_registered_when_the_kubelet_confirms_it(
    plugin: CsiPlugin, is_registered: bool
) -> None:
    status = REGISTRATION.new("RegistrationStatus", plugin_registered=is_registered, error="why")

    call_registration("NotifyRegistrationStatus", status, "Empty")

    assert plugin.registered.is_set() is is_registered


def test_the_driver_names_its_machine(plugin: CsiPlugin) -> None:
    assert call_node("NodeGetInfo", "Empty").node_id == "gpu-0"


def test_the_error_for_a_volume_that_is_not_in_the_account_names_it(
    plugin: CsiPlugin, tmp_path: Path
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        call_node(
            "NodePublishVolume",
            "NodePublishVolumeRequest",
            volume_id="fs-1",
            target_path=str(tmp_path / "target"),
        )

    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "fsx.csi.aws.com: the account has no volume 'fs-1'" in (error.value.details() or "")
    assert not (tmp_path / "target").exists()


def test_a_damaged_list_of_volumes_is_an_error_with_its_path(
    plugin: CsiPlugin, tmp_path: Path
) -> None:
    path = tmp_path / "account" / "volumes.json"
    path.parent.mkdir()
    path.write_text("{")

    with pytest.raises(grpc.RpcError) as error:
        call_node("NodePublishVolume", "NodePublishVolumeRequest", volume_id="fs-1")

    assert error.value.code() is grpc.StatusCode.INTERNAL
    assert f"fsx.csi.aws.com: {path} is damaged" in (error.value.details() or "")


def test_unpublishing_an_unmounted_volume_succeeds(plugin: CsiPlugin, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    fields = {"volume_id": "fs-1", "target_path": str(tmp_path / "target")}

    call_node("NodeUnpublishVolume", "NodeUnpublishVolumeRequest", **fields)
    call_node("NodeUnpublishVolume", "NodeUnpublishVolumeRequest", **fields)

    assert not (tmp_path / "target").exists()


def test_a_driver_that_ends_leaves_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sockets = [path(csi_drivers.BLOB, Path()) for path in (csi.socket_of, csi.registration_of)]
    with csi.serving(CsiPlugin(csi_drivers.BLOB, "n", tmp_path, tmp_path), Path()):
        assert all(socket.exists() for socket in sockets)

    assert not any(socket.exists() for socket in sockets)
