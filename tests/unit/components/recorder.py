"""A strict stand-in for Pulumi's engine: it records all and refuses what the SDK does not know.

Pulumi's own mocks let duplicate names and misspelt properties pass and show neither dependencies
nor options; this monitor sees the requests that the real engine would get.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import json_format
from pulumi.runtime import mocks

from tests.unit.components.answers import Answers
from tests.unit.components.sdk_types import complaints

SECRET = "4dabf18193072939515e22adb298388d"  # Pulumi's mark of a secret in serialised values
STACK = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class Recorded:
    """One resource as it was registered.

    Attributes:
        parent: the parent's URN; that of the stack for those at the top.
        inputs: as they would be sent, secrets unwrapped.
        secrets: dotted paths of the inputs that are secret.
        dependencies: URNs of all that it waits for: asked for, or read from.
        property_dependencies: the URNs that each input was read from.
        provider: reference to the provider's resource, `URN::id`; empty for components.
        providers: the same by package, handed to children.
    """

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    secrets: frozenset[str]
    dependencies: frozenset[str]
    property_dependencies: Mapping[str, frozenset[str]]
    provider: str
    providers: Mapping[str, str]
    protect: bool
    retain_on_delete: bool
    delete_before_replace: bool
    deleted_with: str
    ignore_changes: tuple[str, ...]
    replace_on_changes: tuple[str, ...]
    aliases: tuple[Any, ...]
    timeouts: tuple[str, str, str]


@dataclass
class Graph:
    """What a program declared, by name."""

    resources: dict[str, Recorded] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Recorded:
        return self.resources[name]

    def of(self, kind: str) -> list[Recorded]:
        """Give the resources whose type ends in `kind`."""
        return [one for one in self.resources.values() if one.type.rsplit(":", 1)[-1] == kind]

    def one(self, kind: str) -> Recorded:
        """Give the only resource whose type ends in `kind`, components aside."""
        found = [one for one in self.of(kind) if one.custom]
        assert len(found) == 1, f"{kind}: {sorted(one.name for one in found)}"
        return found[0]

    def custom(self, package: str) -> list[Recorded]:
        """Give all that a provider of `package` makes."""
        return [
            one
            for one in self.resources.values()
            if one.custom and one.type.startswith(f"{package}:")
        ]

    def objects(self) -> list[dict[str, Any]]:
        """Give the Kubernetes objects, as they would be sent."""
        return [dict(one.inputs) for one in self.custom("kubernetes")]

    def ancestors(self, name: str) -> set[str]:
        """Give the names of all that must be there before `name` is created.

        The engine deletes in the reverse order, so these all outlive it too: a resource's provider
        and its parent (where that is no mere component) count as well as its dependencies.
        """
        by_urn = {one.urn: one for one in self.resources.values()}
        found: set[str] = set()
        waiting = [self.resources[name]]
        while waiting:
            for urn in _needed(waiting.pop(), by_urn):
                one = by_urn.get(urn)
                if one is not None and one.name not in found:
                    found.add(one.name)
                    waiting.append(one)
        return found


def _needed(one: Recorded, by_urn: Mapping[str, Recorded]) -> Iterator[str]:
    """Give the URNs that a resource needs at first hand."""
    yield from one.dependencies
    if one.provider:
        yield one.provider.rpartition("::")[0]
    if one.parent in by_urn and by_urn[one.parent].custom:
        yield one.parent


class RecordingMonitor(mocks.MockMonitor):
    """Records requests; refuses duplicates and inputs that the SDK or a cloud would not take."""

    def __init__(self) -> None:
        super().__init__(Answers())
        self.graph = Graph()
        self.faults: list[str] = []  # raised together in the end: Pulumi would bury each deeply

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        if request.type != STACK:
            self._record(request)
        with event_loop():  # Pulumi's mocks open one in each of their threads and leave it open
            return super().RegisterResource(request)

    def Invoke(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        with event_loop():
            return super().Invoke(request)

    def _record(self, request: Any) -> None:
        if request.name in self.graph.resources:
            self.faults.append(f"two resources are named {request.name}")
        if not request.parent:
            self.faults.append(f"{request.name} has no parent, not even the stack")
        raw = json_format.MessageToDict(request.object)
        inputs = plain(raw)
        if request.custom:
            self.faults += [f"{request.name}: {one}" for one in complaints(request.type, inputs)]
        times = request.customTimeouts
        self.graph.resources[request.name] = Recorded(
            urn=self.make_urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            inputs=inputs,
            secrets=frozenset(secret_paths(raw)),
            dependencies=frozenset(request.dependencies),
            property_dependencies={
                key: frozenset(value.urns) for key, value in request.propertyDependencies.items()
            },
            provider=request.provider,
            providers=dict(request.providers),
            protect=request.protect,
            retain_on_delete=request.retainOnDelete,
            delete_before_replace=request.deleteBeforeReplace,
            deleted_with=request.deletedWith,
            ignore_changes=tuple(request.ignoreChanges),
            replace_on_changes=tuple(request.replaceOnChanges),
            aliases=tuple(request.aliases),
            timeouts=(times.create, times.update, times.delete),
        )


@contextmanager
def event_loop() -> Iterator[None]:
    """Give this thread an event loop, and close it in the end."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def record(program: Callable[[], Mapping[str, Any] | None]) -> Graph:
    """Run a program that declares resources; give what it declared once all of it is registered.

    Raises:
        AssertionError: something is declared twice, or with inputs that the SDK does not know.
    """
    monitor = RecordingMonitor()
    with event_loop():
        mocks.set_mocks(
            monitor.mocks, project="everstep", stack="test", preview=False, monitor=monitor
        )

        @pulumi.runtime.test
        def run() -> pulumi.Output[Any]:
            said = program() or {}

            def keep(values: Mapping[str, Any]) -> None:
                monitor.graph.outputs.update(values)

            return pulumi.Output.all(**said).apply(keep)

        run()
    if monitor.faults:
        raise AssertionError("\n".join(monitor.faults))
    return monitor.graph


def plain(value: Any) -> Any:
    """Undo the wire's changes: secrets unwrapped, whole numbers whole."""
    if isinstance(value, dict):
        if SECRET in value:
            return plain(value.get("value"))
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def secret_paths(value: Any, path: str = "") -> Iterable[str]:
    """Give the dotted paths of the values that are marked as secret."""
    if isinstance(value, dict):
        if SECRET in value:
            yield path.removeprefix(".")
            return
        for key, inner in value.items():
            yield from secret_paths(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secret_paths(inner, f"{path}[{index}]")
