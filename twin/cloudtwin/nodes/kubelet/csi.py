"""A CSI driver that mounts folders in place of a cloud's file systems.

The kubelet finds it by its registration socket and calls it to publish volumes, as it calls the drivers of AWS
and Azure. The folders are on the disk that all machines share. The cloud account determines which volumes may be
mounted.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import grpc
from google.protobuf.message import Message

from cloudtwin import files
from cloudtwin.files import DamagedFileError
from cloudtwin.nodes.kubelet import csi_drivers, volume_access
from cloudtwin.nodes.kubelet.grpc_server import Methods, handler, listening
from cloudtwin.nodes.kubelet.messages import BOOL, STRING, Messages
from cloudtwin.nodes.kubelet.volume_access import Refusal
from cloudtwin.nodes.layout import VOLUMES
from cloudtwin.nodes.linux import mounts, syscalls

FOLDER = Path("/var/lib/kubelet")  # default of the kubelet's --root-dir
VERSION = "1.0.0"
# A map is encoded as repeated pairs of key and value.
CSI = Messages(
    "csi.v1",
    {
        "Empty": (),
        "MapEntry": (("key", 1, STRING, False), ("value", 2, STRING, False)),
        "GetPluginInfoResponse": (("name", 1, STRING, False), ("vendor_version", 2, STRING, False)),
        "NodeGetInfoResponse": (("node_id", 1, STRING, False),),
        "NodePublishVolumeRequest": (
            ("volume_id", 1, STRING, False),
            ("target_path", 4, STRING, False),
            ("readonly", 6, BOOL, False),
            ("volume_context", 8, "MapEntry", True),
        ),
        "NodeUnpublishVolumeRequest": (
            ("volume_id", 1, STRING, False),
            ("target_path", 2, STRING, False),
        ),
    },
)
REGISTRATION = Messages(
    "pluginregistration",
    {
        "Empty": (),
        "PluginInfo": (
            ("type", 1, STRING, False),
            ("name", 2, STRING, False),
            ("endpoint", 3, STRING, False),
            ("supported_versions", 4, STRING, True),
        ),
        "RegistrationStatus": (
            ("plugin_registered", 1, BOOL, False),
            ("error", 2, STRING, False),
        ),
    },
)


class MapEntry(Protocol):
    """One entry of a map."""

    key: str
    value: str


class PublishRequest(Protocol):
    """Request to mount a volume at a path."""

    volume_id: str
    target_path: str
    readonly: bool
    volume_context: Sequence[MapEntry]


class UnpublishRequest(Protocol):
    """Request to unmount a volume."""

    volume_id: str
    target_path: str


class RegistrationStatus(Protocol):
    """Result of a registration."""

    plugin_registered: bool
    error: str


class CsiPlugin:
    """One driver on one machine.

    Attributes:
        registered: set once the kubelet has registered the driver.
    """

    def __init__(self, driver: str, node: str, account: Path, shared: Path) -> None:
        self.driver = driver
        self.registered = threading.Event()
        self._node = node
        self._account = account
        self._shared = shared
        self._mounts_lock = threading.Lock()

    def publish(self, request: PublishRequest, context: grpc.ServicerContext) -> Message:
        """Mount a volume's folder at the target, unless it is mounted.

        The kubelet shows a refusal in the pod's events and tries again later.
        """
        attributes = {pair.key: pair.value for pair in request.volume_context}
        audience = csi_drivers.AUDIENCE if self.driver == csi_drivers.BLOB else ""
        try:
            volumes = files.read_json(self._account / VOLUMES) or {}
        except DamagedFileError as error:
            refuse(context, grpc.StatusCode.INTERNAL, f"{self.driver}: {error}")
        decision = volume_access.decide(volumes, request.volume_id, attributes, audience)
        if isinstance(decision, Refusal):
            refuse(context, grpc.StatusCode[decision.status], f"{self.driver}: {decision.reason}")
        source, target = self._shared / decision.folder, Path(request.target_path)
        with self._mounts_lock:
            if not source.is_dir():
                source.mkdir(parents=True)
                source.chmod(decision.mode)
            if target not in mounts.mount_points_below(target):
                target.mkdir(parents=True, exist_ok=True)
                syscalls.bind(source, target, read_only=request.readonly)
        return CSI.new("Empty")

    def unpublish(self, request: UnpublishRequest, _context: grpc.ServicerContext) -> Message:
        """Unmount the target, if it is mounted."""
        target = Path(request.target_path)
        with self._mounts_lock:
            for mount_point in mounts.mount_points_below(target):
                syscalls.unmount(mount_point)
            with contextlib.suppress(FileNotFoundError):
                target.rmdir()
        return CSI.new("Empty")

    def plugin_info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Return the driver's name and version."""
        return CSI.new("GetPluginInfoResponse", name=self.driver, vendor_version=VERSION)

    def node_info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Return the machine's name."""
        return CSI.new("NodeGetInfoResponse", node_id=self._node)

    def capabilities(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Return no optional capabilities; the empty response to a probe means ready."""
        return CSI.new("Empty")

    def info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Return the driver's endpoint."""
        return REGISTRATION.new(
            "PluginInfo",
            type="CSIPlugin",
            name=self.driver,
            endpoint=str(socket_of(self.driver)),
            supported_versions=[VERSION],
        )

    def notify(self, request: RegistrationStatus, _context: grpc.ServicerContext) -> Message:
        """Record the result of the registration."""
        print(
            f"{self.driver}: {'registered' if request.plugin_registered else request.error}",
            flush=True,
        )
        if request.plugin_registered:
            self.registered.set()
        return REGISTRATION.new("Empty")


def refuse(context: grpc.ServicerContext, status: grpc.StatusCode, reason: str) -> NoReturn:
    """Abort a call with an error.

    Raises:
        Exception: always; the gRPC server turns it into the call's status.
    """
    context.abort(status, reason)
    raise AssertionError("abort raises")


def socket_of(driver: str, folder: Path = FOLDER) -> Path:
    """Return the socket of a driver."""
    return folder / "plugins" / driver / "csi.sock"


def registration_of(driver: str, folder: Path = FOLDER) -> Path:
    """Return the socket by which the kubelet finds a driver."""
    return folder / "plugins_registry" / f"{driver}-reg.sock"


@contextlib.contextmanager
def serving(plugin: CsiPlugin, folder: Path = FOLDER) -> Iterator[None]:
    """Serve a driver while the block runs: first its own socket, then the registration socket."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(listening(_service(plugin), socket_of(plugin.driver, folder)))
        stack.enter_context(
            listening(_registration(plugin), registration_of(plugin.driver, folder))
        )
        yield


def _service(plugin: CsiPlugin) -> "list[grpc.GenericRpcHandler[Message, Message]]":
    empty = CSI["Empty"]
    identity: Methods = {
        "GetPluginInfo": (plugin.plugin_info, empty),
        "GetPluginCapabilities": (plugin.capabilities, empty),
        "Probe": (plugin.capabilities, empty),
    }
    node: Methods = {
        "NodeGetInfo": (plugin.node_info, empty),
        "NodeGetCapabilities": (plugin.capabilities, empty),
        "NodePublishVolume": (plugin.publish, CSI["NodePublishVolumeRequest"]),
        "NodeUnpublishVolume": (plugin.unpublish, CSI["NodeUnpublishVolumeRequest"]),
    }
    return [handler("csi.v1.Identity", identity), handler("csi.v1.Node", node)]


def _registration(plugin: CsiPlugin) -> "list[grpc.GenericRpcHandler[Message, Message]]":
    methods: Methods = {
        "GetInfo": (plugin.info, REGISTRATION["Empty"]),
        "NotifyRegistrationStatus": (plugin.notify, REGISTRATION["RegistrationStatus"]),
    }
    return [handler("pluginregistration.Registration", methods)]
