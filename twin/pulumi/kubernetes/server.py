"""The provider's gRPC face.

Turns the engine's requests into operations and their errors into its answers.
"""

# ruff: noqa: N802, ARG002  (gRPC names the methods and passes each of them the same arguments)

import json
import logging
from collections.abc import Sequence

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc import ServicerContext
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
from pulumi.runtime.proto import provider_pb2 as pb

from twin.pulumi import plugin
from twin.pulumi.install import KUBERNETES_VERSION
from twin.pulumi.kubernetes import diff as diffs
from twin.pulumi.kubernetes import manifests, objects
from twin.pulumi.kubernetes import settings as wishes
from twin.pulumi.kubernetes.errors import NotReadyError
from twin.pulumi.kubernetes.operations import Operations
from twin.pulumi.provider.answers import Partial, answering
from twin.pulumi.provider.convert import (
    Object,
    from_struct,
    has_unknown,
    plain,
    to_struct,
)
from twin.pulumi.provider.engine import Engine
from twin.pulumi.provider.errors import ProviderError

BANNER = (
    f"kubernetes provider {KUBERNETES_VERSION}: the stand-in of everstep's twin, not the official "
    "plugin. It applies server-side, waits for readiness, and has no Patch, List, Helm or "
    "Kustomize resources."
)
OFFICIAL_ONLY = "is not supported by the stand-in kubernetes provider; install the official plugin"


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider instance, as the engine sees it."""

    def __init__(self, engine: str) -> None:
        self._engine = Engine(engine)
        self._operations = Operations(wishes.Settings(), self._engine)

    title = "the stand-in kubernetes provider"

    def partial(self, request: Message, error: Exception) -> Partial | None:
        """Return an object that exists but is not ready."""
        if not isinstance(error, NotReadyError):
            return None
        return Partial(_identity(error.live), error.live, error.inputs, error.reasons)

    # -- about the provider itself

    def Handshake(
        self, request: pb.ProviderHandshakeRequest, context: ServicerContext
    ) -> pb.ProviderHandshakeResponse:
        """Agree on the protocol: secrets come as secrets, old inputs come with every request."""
        self._engine = Engine(request.engine_address)
        self._engine.say(logging.DEBUG, "", BANNER)
        return pb.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Empty, context: ServicerContext) -> plugin_pb2.PluginInfo:
        """Report the version that the SDK asks for."""
        return plugin_pb2.PluginInfo(version=KUBERNETES_VERSION)

    def GetSchema(
        self, request: pb.GetSchemaRequest, context: ServicerContext
    ) -> pb.GetSchemaResponse:
        """Return a schema without types: the SDKs bring their own."""
        return pb.GetSchemaResponse(
            schema=json.dumps({"name": "kubernetes", "version": KUBERNETES_VERSION})
        )

    def Attach(self, request: plugin_pb2.PluginAttach, context: ServicerContext) -> Empty:
        """Serve an engine that found this process already running."""
        self._engine = Engine(request.address)
        return Empty()

    def Cancel(self, request: Empty, context: ServicerContext) -> Empty:
        """End every wait; what exists keeps its state."""
        self._operations.cancel()
        return Empty()

    @answering
    def CheckConfig(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Refuse arguments that cannot be honoured."""
        given = from_struct(request.news)
        failures = []
        try:
            if not has_unknown(given):
                wishes.parse(given)
        except ProviderError as error:
            failures.append(pb.CheckFailure(reason=str(error)))
        return pb.CheckResponse(inputs=request.news, failures=failures)

    @answering
    def DiffConfig(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Decide whether the provider points at another cluster now."""
        old, new = from_struct(request.old_inputs), from_struct(request.news)
        if old == new:
            return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)
        replaces = (
            [] if has_unknown(new) else wishes.must_replace(wishes.parse(old), wishes.parse(new))
        )
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        return pb.DiffResponse(changes=pb.DiffResponse.DIFF_SOME, diffs=changed, replaces=replaces)

    @answering
    def Configure(
        self, request: pb.ConfigureRequest, context: ServicerContext
    ) -> pb.ConfigureResponse:
        """Take the provider's arguments.

        The cluster is first asked when something is to be done.
        """
        self._operations = Operations(wishes.parse(from_struct(request.args)), self._engine)
        return pb.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    # -- about resources

    @answering
    def Check(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Complete a resource's inputs."""
        token = request.type or _type_of(request.urn)
        if objects.is_patch_or_list(token) or not _has_group(token):
            raise ProviderError(f"{token} {OFFICIAL_ONLY}")
        new = from_struct(request.news)
        failures = [
            pb.CheckFailure(property=key, reason=f"{key} is missing")
            for key in ("apiVersion", "kind")
            if not plain(new.get(key))
        ]
        if failures:
            return pb.CheckResponse(inputs=request.news, failures=failures)
        name = request.name or request.urn.rpartition("::")[2]
        checked = self._operations.check(name, from_struct(request.olds), new, request.randomSeed)
        return pb.CheckResponse(inputs=to_struct(checked))

    @answering
    def Diff(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Compare last and new inputs."""
        found = diffs.compare(
            from_struct(request.old_inputs),
            from_struct(request.news),
            request.ignoreChanges,
            self._operations.settings.mutable,
        )
        return found.response()

    @answering
    def Create(self, request: pb.CreateRequest, context: ServicerContext) -> pb.CreateResponse:
        """Create an object, or foresee it."""
        inputs = from_struct(request.properties)
        if request.preview:
            foreseen = self._operations.preview(request.urn, inputs, {})
            return pb.CreateResponse(properties=to_struct(foreseen))
        identity, outputs = self._operations.create(request.urn, inputs, request.timeout)
        return pb.CreateResponse(id=identity, properties=to_struct(outputs))

    @answering
    def Update(self, request: pb.UpdateRequest, context: ServicerContext) -> pb.UpdateResponse:
        """Change an object, or foresee the change."""
        inputs, old = from_struct(request.news), from_struct(request.olds)
        if request.preview:
            foreseen = self._operations.preview(request.urn, inputs, old)
            return pb.UpdateResponse(properties=to_struct(foreseen))
        outputs = self._operations.update(
            request.urn, inputs, old, request.timeout, request.ignoreChanges
        )
        return pb.UpdateResponse(properties=to_struct(outputs))

    @answering
    def Read(self, request: pb.ReadRequest, context: ServicerContext) -> pb.ReadResponse:
        """Read an object for a refresh or an import."""
        inputs, state = from_struct(request.inputs), from_struct(request.properties)
        token = request.type or _type_of(request.urn)
        found = self._operations.read(request.urn, token, request.id, inputs, state)
        if found is None:
            return pb.ReadResponse()
        return pb.ReadResponse(
            id=found.id, properties=to_struct(found.outputs), inputs=to_struct(found.inputs)
        )

    @answering
    def Delete(self, request: pb.DeleteRequest, context: ServicerContext) -> Empty:
        """Delete an object and wait until it is gone."""
        state = from_struct(request.properties)
        token = request.type or _type_of(request.urn)
        self._operations.delete(request.urn, token, request.id, state, request.timeout)
        return Empty()

    @answering
    def Invoke(self, request: pb.InvokeRequest, context: ServicerContext) -> pb.InvokeResponse:
        """Run one of the provider's functions."""
        if request.tok != "kubernetes:yaml:decode":
            raise ProviderError(f"{request.tok} {OFFICIAL_ONLY}")
        result = {"result": manifests.decode(str(plain(from_struct(request.args)["text"])))}
        response = pb.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(result))
        return response

    @answering
    def Construct(
        self, request: pb.ConstructRequest, context: ServicerContext
    ) -> pb.ConstructResponse:
        """Refuse the provider's own components: they are opaque to the program's tests anyway."""
        raise ProviderError(f"{request.type} {OFFICIAL_ONLY}")


def _type_of(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _has_group(token: str) -> bool:
    """Tell a Kubernetes kind from the provider's own resources (helm.sh, yaml, kustomize)."""
    return token.split(":")[1] not in ("helm.sh/v3", "helm.sh/v4", "yaml/v2", "kustomize/v2")


def _identity(live: Object) -> str:
    given = plain(live["metadata"])
    return f"{given['namespace']}/{given['name']}" if given.get("namespace") else str(given["name"])


def serve(arguments: Sequence[str]) -> None:
    """Serve the engine that started this process; arguments are those that it gave."""
    provider = Provider(plugin.engine_address(arguments))

    def register(server: grpc.Server) -> None:
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)

    plugin.serve(register, on_end=lambda: None)
