"""The storage plugin's protocol, over real sockets; mounting needs root and is tried in `tests/twin`."""

from pathlib import Path

import grpc
import pytest

from twin.nodes import csi, drivers
from twin.nodes.csi import CSI, REGISTRATION, Plugin

NODE, REGISTRY = "/csi.v1.Node/", "/pluginregistration.Registration/"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 characters; pytest's are longer
    plugin = Plugin(drivers.FSX, "gpu-0", tmp_path / "account", tmp_path / "shared")
    with csi.serving(plugin, Path()):
        yield plugin


def call(method, request, answer, socket):
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        ask = channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return ask(request, timeout=5)


def ask_node(method, name, **fields):
    wanted = CSI.new(name, **fields)
    answer = {"NodeGetInfo": "NodeGetInfoResponse"}.get(method, "Empty")
    return call(NODE + method, wanted, CSI[answer], csi.socket_of(drivers.FSX, Path()))


def ask_registry(method, request, answer):
    socket = csi.registration_of(drivers.FSX, Path())
    return call(REGISTRY + method, request, REGISTRATION[answer], socket)


def test_the_kubelet_is_told_where_the_driver_is(plugin):
    info = ask_registry("GetInfo", REGISTRATION.new("Empty"), "PluginInfo")

    assert (info.type, info.name) == ("CSIPlugin", "fsx.csi.aws.com")
    assert info.endpoint == "/var/lib/kubelet/plugins/fsx.csi.aws.com/csi.sock"
    assert list(info.supported_versions) == ["1.0.0"]


@pytest.mark.parametrize("done", [True, False])
def test_the_driver_is_registered_when_the_kubelet_says_so(plugin, done):
    said = REGISTRATION.new("RegistrationStatus", plugin_registered=done, error="why")

    ask_registry("NotifyRegistrationStatus", said, "Empty")

    assert plugin.registered.is_set() is done


def test_the_driver_names_its_machine(plugin):
    assert ask_node("NodeGetInfo", "Empty").node_id == "gpu-0"


def test_a_volume_that_the_account_does_not_hold_is_refused_by_name(plugin, tmp_path):
    with pytest.raises(grpc.RpcError) as refused:
        ask_node(
            "NodePublishVolume",
            "NodePublishVolumeRequest",
            volume_id="fs-1",
            target_path=str(tmp_path / "target"),
        )

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert (
        "fsx.csi.aws.com: the account has nothing that is called 'fs-1'" in refused.value.details()
    )
    assert not (tmp_path / "target").exists()


def test_taking_away_what_is_not_mounted_is_fine(plugin, tmp_path):
    (tmp_path / "target").mkdir()
    wanted = {"volume_id": "fs-1", "target_path": str(tmp_path / "target")}

    ask_node("NodeUnpublishVolume", "NodeUnpublishVolumeRequest", **wanted)
    ask_node("NodeUnpublishVolume", "NodeUnpublishVolumeRequest", **wanted)

    assert not (tmp_path / "target").exists()


def test_a_driver_that_ends_leaves_no_socket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with csi.serving(Plugin(drivers.BLOB, "n", tmp_path, tmp_path), Path()):
        assert csi.registration_of(drivers.BLOB, Path()).exists()

    assert not csi.registration_of(drivers.BLOB, Path()).exists()
