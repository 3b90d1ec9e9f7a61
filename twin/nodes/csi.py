"""The plugin that answers for a cloud's storage driver: real CSI, and a folder where the file system would be.

The kubelet finds it by its registration socket and asks it to publish volumes, as it asks the drivers of AWS and
Azure. What it mounts lies on the disk that all machines share; whether it may is for the account to say.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import NoReturn, Protocol

import grpc
from google.protobuf.message import Message

from twin.nodes import drivers, files, linux, mounts, volumes
from twin.nodes.messages import BOOL, STRING, Messages
from twin.nodes.volumes import Refusal

FOLDER = Path("/var/lib/kubelet")  # the kubelet's own constant
VERSION = "1.0.0"
Methods = Mapping[str, tuple[Callable[..., Message], type[Message]]]  # how, and of what request
# A map travels as repeated pairs of key and value.
CSI = Messages(
    "csi.v1",
    {
        "Empty": (),
        "Pair": (("key", 1, STRING, False), ("value", 2, STRING, False)),
        "GetPluginInfoResponse": (("name", 1, STRING, False), ("vendor_version", 2, STRING, False)),
        "NodeGetInfoResponse": (("node_id", 1, STRING, False),),
        "NodePublishVolumeRequest": (
            ("volume_id", 1, STRING, False),
            ("target_path", 4, STRING, False),
            ("readonly", 6, BOOL, False),
            ("volume_context", 8, "Pair", True),
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


class Pair(Protocol):
    """One entry of a map."""

    key: str
    value: str


class Publish(Protocol):
    """A volume is wanted at a path."""

    volume_id: str
    target_path: str
    readonly: bool
    volume_context: Sequence[Pair]


class Unpublish(Protocol):
    """A volume is no longer wanted at a path."""

    volume_id: str
    target_path: str


class Status(Protocol):
    """What the kubelet made of our registration."""

    plugin_registered: bool
    error: str


class Plugin:
    """One driver on one machine.

    Attributes:
        registered: set once the kubelet has taken the driver up.
    """

    def __init__(self, driver: str, node: str, account: Path, shared: Path) -> None:
        self.driver = driver
        self.registered = threading.Event()
        self._node = node
        self._account = account
        self._shared = shared
        self._changing = threading.Lock()

    def publish(self, request: Publish, context: grpc.ServicerContext) -> Message:
        """Mount a volume's folder at the target; one that is there already is fine.

        The kubelet shows a refusal in the pod's events and tries again later.
        """
        given = {pair.key: pair.value for pair in request.volume_context}
        audience = drivers.AUDIENCE if self.driver == drivers.BLOB else ""
        verdict = volumes.judge(self._volumes(), request.volume_id, given, audience)
        if isinstance(verdict, Refusal):
            refuse(context, grpc.StatusCode[verdict.status], f"{self.driver}: {verdict.why}")
        source, target = self._shared / verdict.folder, Path(request.target_path)
        with self._changing:
            if not source.is_dir():
                source.mkdir(parents=True)
                source.chmod(verdict.mode)
            if target not in mounts.below(target):
                target.mkdir(parents=True, exist_ok=True)
                linux.bind(source, target, read_only=request.readonly)
        return CSI.new("Empty")

    def unpublish(self, request: Unpublish, _context: grpc.ServicerContext) -> Message:
        """Take the mount away; one that is not there is fine."""
        target = Path(request.target_path)
        with self._changing:
            for mounted in mounts.below(target):
                linux.unmount(mounted)
            with contextlib.suppress(FileNotFoundError):
                target.rmdir()
        return CSI.new("Empty")

    def plugin_info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Say who we are."""
        return CSI.new("GetPluginInfoResponse", name=self.driver, vendor_version=VERSION)

    def node_info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Say which machine this is."""
        return CSI.new("NodeGetInfoResponse", node_id=self._node)

    def nothing(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Answer what asks for abilities beyond the plain ones: there are none."""
        return CSI.new("Empty")

    def info(self, _request: Message, _context: grpc.ServicerContext) -> Message:
        """Tell the kubelet where the driver is."""
        return REGISTRATION.new(
            "PluginInfo",
            type="CSIPlugin",
            name=self.driver,
            endpoint=str(socket_of(self.driver)),
            supported_versions=[VERSION],
        )

    def notify(self, request: Status, _context: grpc.ServicerContext) -> Message:
        """Hear what became of the registration."""
        print(
            f"{self.driver}: {'registered' if request.plugin_registered else request.error}",
            flush=True,
        )
        if request.plugin_registered:
            self.registered.set()
        return REGISTRATION.new("Empty")

    def _volumes(self) -> Mapping[str, object]:
        return files.read_json(self._account / "volumes.json") or {}


def refuse(context: grpc.ServicerContext, status: grpc.StatusCode, why: str) -> NoReturn:
    """End a call with an error.

    Raises:
        Exception: always; that is how the server learns of it.
    """
    context.abort(status, why)
    raise AssertionError("abort raises")


def socket_of(driver: str, folder: Path = FOLDER) -> Path:
    """Return where a driver listens."""
    return folder / "plugins" / driver / "csi.sock"


def registration_of(driver: str, folder: Path = FOLDER) -> Path:
    """Return where the kubelet looks for a driver."""
    return folder / "plugins_registry" / f"{driver}-reg.sock"


@contextlib.contextmanager
def serving(plugin: Plugin, folder: Path = FOLDER) -> Iterator[None]:
    """Serve a driver while the block runs: first its own socket, then the one the kubelet looks for."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_listening(_service(plugin), socket_of(plugin.driver, folder)))
        stack.enter_context(
            _listening(_registration(plugin), registration_of(plugin.driver, folder))
        )
        yield


@contextlib.contextmanager
def _listening(
    handlers: "Sequence[grpc.GenericRpcHandler[Message, Message]]", socket: Path
) -> Iterator[None]:
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()
        socket.unlink(missing_ok=True)  # the kubelet forgets the driver by that


def _service(plugin: Plugin) -> "list[grpc.GenericRpcHandler[Message, Message]]":
    empty = CSI["Empty"]
    identity: Methods = {
        "GetPluginInfo": (plugin.plugin_info, empty),
        "GetPluginCapabilities": (plugin.nothing, empty),
        "Probe": (plugin.nothing, empty),
    }
    node: Methods = {
        "NodeGetInfo": (plugin.node_info, empty),
        "NodeGetCapabilities": (plugin.nothing, empty),
        "NodePublishVolume": (plugin.publish, CSI["NodePublishVolumeRequest"]),
        "NodeUnpublishVolume": (plugin.unpublish, CSI["NodeUnpublishVolumeRequest"]),
    }
    return [_handler("csi.v1.Identity", identity), _handler("csi.v1.Node", node)]


def _registration(plugin: Plugin) -> "list[grpc.GenericRpcHandler[Message, Message]]":
    methods: Methods = {
        "GetInfo": (plugin.info, REGISTRATION["Empty"]),
        "NotifyRegistrationStatus": (plugin.notify, REGISTRATION["RegistrationStatus"]),
    }
    return [_handler("pluginregistration.Registration", methods)]


def _handler(
    service: str, methods: Methods
) -> "grpc.GenericRpcHandler[Message, Message]":  # a generic in its stubs only
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: grpc.unary_unary_rpc_method_handler(
                method, request.FromString, lambda answer: bytes(answer.SerializeToString())
            )
            for name, (method, request) in methods.items()
        },
    )
