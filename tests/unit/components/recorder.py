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

SECRET = "4dabf18193072939515e22adb298388d"  # Pulumi's mark of a secret in serialised values


@dataclass(frozen=True)
class Recorded:
    """One resource as it was registered."""

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    dependencies: frozenset[str]
    provider: str
    delete_before_replace: bool
    ignore_changes: tuple[str, ...]
    replace_on_changes: tuple[str, ...]


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

    def objects(self) -> list[dict[str, Any]]:
        """Give the Kubernetes objects, as they would be sent."""
        return [
            dict(one.inputs)
            for one in self.resources.values()
            if one.custom and one.type.startswith("kubernetes:")
        ]

    def ancestors(self, name: str) -> set[str]:
        """Give the names of all that must be there before `name` is created."""
        by_urn = {one.urn: one for one in self.resources.values()}
        found: set[str] = set()
        waiting = [self.resources[name]]
        while waiting:
            for urn in waiting.pop().dependencies:
                one = by_urn.get(urn)
                if one is not None and one.name not in found:
                    found.add(one.name)
                    waiting.append(one)
        return found


class Answers(mocks.Mocks):
    """Answers as an API server would: the inputs back, and an id."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program must not call {args.token}")


class RecordingMonitor(mocks.MockMonitor):
    """Records requests; refuses duplicates and properties that the SDK does not have."""

    def __init__(self) -> None:
        super().__init__(Answers())
        self.graph = Graph()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name of the gRPC method
        if request.type != "pulumi:pulumi:Stack":
            self._record(request)
        with event_loop():  # Pulumi's mocks open one in each of their threads and leave it open
            return super().RegisterResource(request)

    def _record(self, request: Any) -> None:
        if request.name in self.graph.resources:
            raise AssertionError(f"two resources are named {request.name}")
        inputs = plain(json_format.MessageToDict(request.object))
        if request.type.startswith("kubernetes:"):
            check_known(request.type, inputs)
        self.graph.resources[request.name] = Recorded(
            urn=self.make_urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            inputs=inputs,
            dependencies=frozenset(request.dependencies),
            provider=request.provider,
            delete_before_replace=request.deleteBeforeReplace,
            ignore_changes=tuple(request.ignoreChanges),
            replace_on_changes=tuple(request.replaceOnChanges),
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
    """Run a program that declares resources; give what it declared once all of it is registered."""
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


def check_known(token: str, inputs: Mapping[str, Any]) -> None:
    """Raise where an input is not a property of the SDK's type, at any depth."""
    arguments = _arguments_type(token)
    if arguments is not None:
        unknown = list(_unknown(arguments, inputs, token))
        if unknown:
            raise AssertionError("the SDK does not know " + ", ".join(unknown))


def _arguments_type(token: str) -> type | None:
    """Find the SDK's input type behind a token such as kubernetes:apps/v1:StatefulSet."""
    import pulumi_kubernetes as kubernetes

    _, group_version, kind = token.split(":", 2)
    if group_version == "elastic.pytorch.org/v1alpha1":
        return None  # a custom resource: its schema is the CRD's
    modules = {
        "core/v1": kubernetes.core.v1,
        "apps/v1": kubernetes.apps.v1,
        "batch/v1": kubernetes.batch.v1,
        "policy/v1": kubernetes.policy.v1,
        "rbac.authorization.k8s.io/v1": kubernetes.rbac.v1,
        "apiextensions.k8s.io/v1": kubernetes.apiextensions.v1,
    }
    return getattr(modules[group_version], f"{kind}InitArgs")


def _unknown(arguments: type, value: Any, path: str) -> Iterable[str]:
    """Give the paths of properties that `arguments` does not have."""
    from pulumi import _types

    known = set(_types.input_type_py_to_pulumi_names(arguments).values())
    inner_types = _types.input_type_types(arguments)
    for key, inner in value.items():
        if key.startswith("x-kubernetes-"):
            continue  # the SDK knows it under another spelling; the wire takes this one
        if key not in known:
            yield f"{path}.{key}"
            continue
        inner_type = _types.unwrap_type(inner_types[key]) if key in inner_types else None
        yield from _unknown_inside(inner_type, inner, f"{path}.{key}")


def _unknown_inside(inner_type: Any, value: Any, path: str) -> Iterable[str]:
    """Look into nested objects, lists of them and maps of them."""
    from typing import get_args

    from pulumi import _types

    if isinstance(value, list):
        for index, element in enumerate(value):
            arguments = get_args(inner_type)
            element_type = _types.unwrap_type(arguments[0]) if arguments else None
            yield from _unknown_inside(element_type, element, f"{path}[{index}]")
    elif isinstance(value, dict):
        if isinstance(inner_type, type) and _types.is_input_type(inner_type):
            yield from _unknown(inner_type, value, path)
        else:
            arguments = get_args(inner_type)
            if len(arguments) == 2:
                for key, element in value.items():
                    yield from _unknown_inside(
                        _types.unwrap_type(arguments[1]), element, f"{path}.{key}"
                    )
