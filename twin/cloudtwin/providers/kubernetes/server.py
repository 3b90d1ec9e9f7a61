"""The gRPC service of the kubernetes provider: the engine's requests become operations."""

from collections.abc import Sequence
from typing import ClassVar

import grpc
from google.protobuf.message import Message
from grpc import ServicerContext
from pulumi.runtime.proto import provider_pb2 as pb

from cloudtwin.providers.kubernetes import config, manifests, objects
from cloudtwin.providers.kubernetes import diff as differences
from cloudtwin.providers.kubernetes.errors import IncompleteObjectError
from cloudtwin.providers.kubernetes.operations import KubernetesOperations
from cloudtwin.providers.protocol import server
from cloudtwin.providers.protocol.diff import Diff
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.resource import (
    InputFailure,
    PartialState,
    ResourceKey,
    ResourceState,
)
from cloudtwin.providers.protocol.values import Object, has_unknown, plain
from cloudtwin.pulumi.install import KUBERNETES_VERSION

OFFICIAL_ONLY = "is not supported by the stand-in kubernetes provider; install the official plugin"
YAML_DECODE = "kubernetes:yaml:decode"


class KubernetesProvider(server.ProviderServer):
    """One instance of the kubernetes provider."""

    package = "kubernetes"
    title = "the stand-in kubernetes provider"
    version = KUBERNETES_VERSION
    banner: ClassVar[str] = (
        f"kubernetes provider {KUBERNETES_VERSION}: cloudtwin's stand-in, not the official plugin. "
        "It applies server-side, waits for readiness, and has no Patch, List, Helm or Kustomize "
        "resources."
    )

    def __init__(self, engine_address: str) -> None:
        super().__init__(engine_address)
        self._operations = KubernetesOperations(config.KubernetesConfig(), self.engine)

    def partial_state(self, _: Message, error: Exception) -> PartialState | None:
        """Return the state of an object that exists but is not ready; None for other errors."""
        if not isinstance(error, IncompleteObjectError):
            return None
        state = ResourceState(_identity(error.outputs), error.outputs, error.inputs)
        return PartialState(state, error.reasons)

    def cancel(self) -> None:
        """Cancel all waits. Objects that exist keep their state."""
        self._operations.cancel()

    def check_configuration(self, arguments: Object) -> None:
        """Raise ProviderError if the arguments cannot be used."""
        config.parse(arguments)

    def replacing_arguments(self, old: Object, new: Object) -> Sequence[str]:
        """Return the arguments that select another cluster, or may do so as they are unknown."""
        if has_unknown(new):
            return config.unknown_arguments(old, new)
        return config.replacing_arguments(config.parse(old), config.parse(new))

    def configure(self, arguments: Object) -> None:
        """Accept the provider's arguments. Nothing is sent to the cluster yet."""
        self._operations = KubernetesOperations(config.parse(arguments), self.engine)

    def check(
        self, key: ResourceKey, old: Object, new: Object, seed: bytes
    ) -> tuple[Object, Sequence[InputFailure]]:
        """Return the inputs with a name and a namespace."""
        if objects.is_patch_or_list(key.token) or not _is_kind(key.token):
            raise ProviderError(f"{key.token} {OFFICIAL_ONLY}")
        missing = [name for name in ("apiVersion", "kind") if not plain(new.get(name))]
        if missing:
            return new, [InputFailure(name, f"{name} is missing") for name in missing]
        return self._operations.check(key.name, old, new, seed), []

    def diff(self, _: ResourceKey, old: Object, new: Object, ignored: Sequence[str]) -> Diff:
        """Compare last and new inputs."""
        return differences.compare(old, new, ignored)

    def preview(self, key: ResourceKey, inputs: Object, outputs: Object) -> Object:
        """Return the expected outputs of a create or an update."""
        return self._operations.preview(key.urn, inputs, outputs)

    def create(self, key: ResourceKey, inputs: Object, seconds: float) -> tuple[str, Object]:
        """Create an object and wait until it is ready."""
        return self._operations.create(key.urn, inputs, seconds)

    def update(
        self, key: ResourceKey, old: ResourceState, inputs: Object, seconds: float, ignored: Sequence[str]
    ) -> Object:  # fmt: skip
        """Update an object and wait until it is ready."""
        return self._operations.update(key.urn, inputs, old.outputs, seconds, ignored)

    def read(self, key: ResourceKey, old: ResourceState) -> ResourceState | None:
        """Read an object for a refresh or an import."""
        return self._operations.read(key, old)

    def delete(self, key: ResourceKey, old: ResourceState, seconds: float) -> None:
        """Delete an object and wait until it is gone."""
        self._operations.delete(key, old, seconds)

    def invoke(self, token: str, arguments: Object) -> Object:
        """Decode YAML, the only function that the stand-in has."""
        if token != YAML_DECODE:
            raise ProviderError(f"{token} {OFFICIAL_ONLY}")
        return {"result": manifests.decode(str(plain(arguments["text"])))}

    def Construct(self, request: pb.ConstructRequest, context: ServicerContext) -> None:  # noqa: N802  gRPC's name
        """Refuse the provider's own components."""
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{request.type} {OFFICIAL_ONLY}")


def _is_kind(token: str) -> bool:
    """Return True for a Kubernetes kind, False for the provider's own resources (helm.sh, yaml, kustomize)."""
    return token.split(":")[1] not in ("helm.sh/v3", "helm.sh/v4", "yaml/v2", "kustomize/v2")


def _identity(outputs: Object) -> str:
    metadata = plain(outputs["metadata"])
    name = str(metadata["name"])
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name


def serve(arguments: Sequence[str]) -> None:
    """Serve the engine that started this process; arguments come from the command line."""
    server.serve(KubernetesProvider, arguments)
