"""A strict fake of Pulumi's engine that records all requests and validates their inputs.

Pulumi's own mocks accept duplicate names and misspelled properties and expose neither dependencies
nor options. This monitor records the requests that the real engine would receive.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pulumi
import pulumi.resource
from google.protobuf import json_format
from pulumi.runtime import mocks

from tests.components.provider_outputs import ProviderOutputs
from tests.components.sdk_schema import schema_errors

SECRET = "4dabf18193072939515e22adb298388d"  # Pulumi's key of special serialized values; here, only secrets occur
STACK = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class RecordedResource:
    """One resource, as registered.

    Attributes:
        parent: URN of the parent; for top-level resources, the stack's.
        inputs: inputs as sent to the engine, with secrets unwrapped.
        secrets: dotted paths of the inputs that are secret.
        dependencies: URNs of all explicit and implicit dependencies.
        property_dependencies: input -> URNs of its implicit dependencies.
        provider: reference to the provider's resource, `URN::id`; empty for components and the default provider.
        providers: package -> provider reference that children inherit.
        timeouts: maximum durations of creation, update and deletion, such as `30m`; empty for the default.
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


@dataclass(frozen=True)
class RecordedCall:
    """One call of a provider's function.

    Attributes:
        token: token of the function.
        arguments: arguments as sent to the engine.
        provider: reference to the provider's resource, `URN::id`; empty for the default provider.
    """

    token: str
    arguments: Mapping[str, Any]
    provider: str


@dataclass
class Graph:
    """The resources and outputs that a program declared, by name, and the functions that it called."""

    resources: dict[str, RecordedResource] = field(default_factory=dict)
    calls: list[RecordedCall] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> RecordedResource:
        return self.resources[name]

    def of_type(self, kind: str) -> list[RecordedResource]:
        """Return the resources whose type has `kind` as its last segment."""
        return [
            resource
            for resource in self.resources.values()
            if resource.type.rsplit(":", 1)[-1] == kind
        ]

    def some_of_type(self, kind: str) -> list[RecordedResource]:
        """Return the resources of `of_type`, at least one: a loop over none of them would check nothing."""
        matching = self.of_type(kind)
        assert matching, f"no resource of type {kind} is declared"
        return matching

    def calls_of(self, token: str) -> list[RecordedCall]:
        """Return the calls of a provider's function."""
        return [call for call in self.calls if call.token == token]

    def one(self, kind: str) -> RecordedResource:
        """Return the only resource, except components, whose type has `kind` as its last segment."""
        matching = [resource for resource in self.of_type(kind) if resource.custom]
        assert len(matching) == 1, f"{kind}: {sorted(resource.name for resource in matching)}"
        return matching[0]

    def resources_of(self, package: str) -> list[RecordedResource]:
        """Return all resources of the provider package `package`."""
        return [
            resource
            for resource in self.resources.values()
            if resource.custom and resource.type.startswith(f"{package}:")
        ]

    def objects(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects, as they would be sent."""
        return [dict(resource.inputs) for resource in self.resources_of("kubernetes")]

    def ancestors(self, name: str) -> set[str]:
        """Return the names of all resources that must exist before `name` is created.

        The engine deletes in reverse order, so these all outlive it too: the dependencies of a
        resource, its provider, and its parent unless that is a component.
        """
        by_urn = {resource.urn: resource for resource in self.resources.values()}
        urns: set[str] = set()
        queue = [self.resources[name]]
        while queue:
            for urn in _direct_dependencies(queue.pop(), by_urn):
                ancestor = by_urn.get(urn)
                if ancestor is not None and ancestor.name not in urns:
                    urns.add(ancestor.name)
                    queue.append(ancestor)
        return urns


def _direct_dependencies(
    resource: RecordedResource, by_urn: Mapping[str, RecordedResource]
) -> Iterator[str]:
    """Yield the URNs of the direct dependencies of a resource."""
    yield from resource.dependencies
    if resource.provider:
        yield resource.provider.rpartition("::")[0]
    if resource.parent in by_urn and by_urn[resource.parent].custom:
        yield resource.parent


class RecordingMonitor(mocks.MockMonitor):
    """A monitor that records requests, and collects duplicates, missing parents and invalid inputs as faults."""

    def __init__(self, outputs: mocks.Mocks) -> None:
        super().__init__(outputs)
        self.graph = Graph()
        self.faults: list[str] = []  # raised together at the end: Pulumi would wrap each one

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        if request.type != STACK:
            self._record(request)
        with event_loop():  # Pulumi's mocks open one in each of their threads and leave it open
            return super().RegisterResource(request)  # type: ignore[no-untyped-call]  # as in the SDK

    def ReadResource(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        with event_loop():
            return super().ReadResource(request)  # type: ignore[no-untyped-call]  # as in the SDK

    def Invoke(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        arguments = deserialize(json_format.MessageToDict(request.args))
        self.graph.calls.append(RecordedCall(request.tok, arguments, request.provider))
        with event_loop():
            return super().Invoke(request)  # type: ignore[no-untyped-call]  # as in the SDK

    def _record(self, request: Any) -> None:
        if request.name in self.graph.resources:
            self.faults.append(f"two resources are named {request.name}")
        if not request.parent:
            self.faults.append(f"{request.name} has no parent, not even the stack")
        serialized = json_format.MessageToDict(request.object)
        inputs = deserialize(serialized)
        if request.custom:
            self.faults += [
                f"{request.name}: {error}" for error in schema_errors(request.type, inputs)
            ]
        times = request.customTimeouts
        self.graph.resources[request.name] = RecordedResource(
            urn=self.make_urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            inputs=inputs,
            secrets=frozenset(secret_paths(serialized)),
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
    """Set an event loop for this thread, and close it at the end."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def record(
    program: Callable[[], Mapping[str, Any] | None], outputs: mocks.Mocks | None = None
) -> Graph:
    """Run a program that declares resources, and return the graph of its resources.

    Args:
        program: declares resources and returns the outputs of a stack.
        outputs: mocks that return ids and outputs; `ProviderOutputs` by default.

    Raises:
        AssertionError: two resources have the same name, or a resource has no parent or invalid inputs.
    """
    monitor = RecordingMonitor(outputs or ProviderOutputs())
    with event_loop(), no_urns_of_aliases():
        mocks.set_mocks(
            monitor.mocks, project="everstep", stack="test", preview=False, monitor=monitor
        )

        @pulumi.runtime.test  # type: ignore[untyped-decorator]  # as in the SDK
        def run() -> pulumi.Output[Any]:
            outputs = program() or {}

            def store_outputs(values: Mapping[str, Any]) -> None:
                monitor.graph.outputs.update(values)

            return pulumi.Output.all(**outputs).apply(store_outputs)

        run()
    if monitor.faults:
        raise AssertionError("\n".join(monitor.faults))
    return monitor.graph


def no_urns_of_aliases() -> AbstractContextManager[object]:
    """Let the SDK skip the URN of each alias, a quarter of the time: it reads them only with engines of before 2022.

    `RecordedResource.aliases` is unaffected: the SDK sends the aliases themselves to the monitor,
    as to the real engine.
    """
    return patch.object(pulumi.resource, "collapse_alias_to_urn", lambda *_: "")


def deserialize(value: Any) -> Any:
    """Undo the serialization: unwrap secrets and restore whole numbers."""
    if isinstance(value, dict):
        if SECRET in value:
            return deserialize(value.get("value"))
        return {key: deserialize(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [deserialize(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def secret_paths(value: Any, path: str = "") -> Iterable[str]:
    """Yield the dotted paths of the values that are marked as secret."""
    if isinstance(value, dict):
        if SECRET in value:
            yield path.removeprefix(".")
            return
        for key, inner in value.items():
            yield from secret_paths(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secret_paths(inner, f"{path}[{index}]")
