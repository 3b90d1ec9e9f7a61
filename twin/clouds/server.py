"""The gRPC face of a cloud: turns the engine's requests into operations, their errors into answers."""

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

from twin.clouds.acting import machines
from twin.clouds.banner import BANNER
from twin.clouds.catalog import Cloud
from twin.clouds.errors import HalfDoneError
from twin.clouds.operations import Operations, Request
from twin.clouds.wire.check import Mistake
from twin.clouds.wire.store import sdk_version
from twin.paths import state_directory
from twin.pulumi import plugin
from twin.pulumi.provider.answers import Partial, answering
from twin.pulumi.provider.convert import (
    Object,
    Secret,
    from_struct,
    has_unknown,
    path_text,
    plain,
    secret_paths,
    to_struct,
    with_secrets,
)
from twin.pulumi.provider.engine import Engine
from twin.pulumi.provider.errors import ProviderError


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider instance, as the engine sees it."""

    def __init__(self, cloud: Cloud, engine: str) -> None:
        self._cloud = cloud
        self._engine = Engine(engine)
        state = state_directory()
        self._operations = Operations(cloud, state, machines(state))
        self._operations.tell = self._engine.status

    @property
    def title(self) -> str:
        """What the user calls it."""
        return f"the twin's {self._cloud.name}"

    def partial(self, request: Message, error: Exception) -> Partial | None:
        """Return a resource that is there but not as wanted."""
        if not isinstance(error, HalfDoneError):
            return None
        made = isinstance(request, pb.CreateRequest)
        given = from_struct(getattr(request, "properties" if made else "news"))
        found = self._operations.account.read().find((_token(request),), error.identity)
        outputs = dict(found.outputs) if found else plain(given)
        return Partial(error.identity, _marked(outputs, given), given, error.reasons)

    # -- about the provider itself

    def Handshake(
        self, request: pb.ProviderHandshakeRequest, context: ServicerContext
    ) -> pb.ProviderHandshakeResponse:
        """Agree on the protocol: secrets come as secrets, old inputs come with every request."""
        self._engine = Engine(request.engine_address)
        self._operations.tell = self._engine.status
        self._engine.say(logging.DEBUG, "", BANNER)
        return pb.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Empty, context: ServicerContext) -> plugin_pb2.PluginInfo:
        """Report the version that the SDK asks for."""
        return plugin_pb2.PluginInfo(version=sdk_version(self._cloud.name))

    def GetSchema(
        self, request: pb.GetSchemaRequest, context: ServicerContext
    ) -> pb.GetSchemaResponse:
        """Return a schema without types: the SDKs bring their own."""
        schema = {"name": self._cloud.name, "version": sdk_version(self._cloud.name)}
        return pb.GetSchemaResponse(schema=json.dumps(schema))

    def Attach(self, request: plugin_pb2.PluginAttach, context: ServicerContext) -> Empty:
        """Serve an engine that found this process already running."""
        self._engine = Engine(request.address)
        self._operations.tell = self._engine.status
        return Empty()

    def Cancel(self, request: Empty, context: ServicerContext) -> Empty:
        """End every wait; what is there keeps its state."""
        self._operations.cancelled.set()
        return Empty()

    @answering
    def CheckConfig(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Refuse arguments that cannot be honoured."""
        given = from_struct(request.news)
        failures = []
        try:
            if not has_unknown(given):
                self._cloud.settings(_arguments(given))
        except ProviderError as error:
            failures.append(pb.CheckFailure(reason=str(error)))
        return pb.CheckResponse(inputs=request.news, failures=failures)

    @answering
    def DiffConfig(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Compare the arguments; another region needs every resource anew."""
        old, new = plain(from_struct(request.old_inputs)), plain(from_struct(request.news))
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        moved = [key for key in changed if key in ("region", "subscriptionId")]
        some = pb.DiffResponse.DIFF_SOME if changed else pb.DiffResponse.DIFF_NONE
        return pb.DiffResponse(changes=some, diffs=changed, replaces=moved)

    @answering
    def Configure(
        self, request: pb.ConfigureRequest, context: ServicerContext
    ) -> pb.ConfigureResponse:
        """Take the provider's arguments."""
        self._operations.settings = self._cloud.settings(_arguments(from_struct(request.args)))
        return pb.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    # -- about resources

    @answering
    def Check(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Complete a resource's inputs, and say all that is wrong with them."""
        checked, mistakes = self._operations.check(
            _request(request),
            from_struct(request.olds),
            from_struct(request.news),
            request.randomSeed,
        )
        return pb.CheckResponse(
            inputs=to_struct(checked), failures=[_failure(each) for each in mistakes]
        )

    @answering
    def Diff(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Compare last and new inputs."""
        found = self._operations.diff(
            _request(request),
            from_struct(request.old_inputs),
            from_struct(request.news),
            list(request.ignoreChanges),
        )
        return found.response()

    @answering
    def Create(self, request: pb.CreateRequest, context: ServicerContext) -> pb.CreateResponse:
        """Make a resource, or foresee it."""
        inputs = from_struct(request.properties)
        if request.preview:
            foreseen = self._operations.preview(_request(request), inputs, {})
            return pb.CreateResponse(properties=to_struct(_marked(foreseen, inputs)))
        identity, outputs = self._operations.create(_request(request), inputs, request.timeout)
        return pb.CreateResponse(id=identity, properties=to_struct(_marked(outputs, inputs)))

    @answering
    def Update(self, request: pb.UpdateRequest, context: ServicerContext) -> pb.UpdateResponse:
        """Change a resource, or foresee the change."""
        inputs = from_struct(request.news)
        if request.preview:
            old = from_struct(request.olds)
            foreseen = self._operations.preview(_request(request), inputs, old)
            return pb.UpdateResponse(properties=to_struct(_marked(foreseen, inputs)))
        outputs = self._operations.update(_request(request), request.id, inputs, request.timeout)
        return pb.UpdateResponse(properties=to_struct(_marked(outputs, inputs)))

    @answering
    def Read(self, request: pb.ReadRequest, context: ServicerContext) -> pb.ReadResponse:
        """Read a resource for a refresh or an import."""
        given = from_struct(request.inputs)
        found = self._operations.read(_request(request), request.id)
        if found is None:
            return pb.ReadResponse()
        resource, inputs = found
        return pb.ReadResponse(
            id=resource.id,
            properties=to_struct(_marked(dict(resource.outputs), given)),
            inputs=to_struct(_marked(dict(inputs), given)),
        )

    @answering
    def Delete(self, request: pb.DeleteRequest, context: ServicerContext) -> Empty:
        """Delete a resource and wait until it is gone."""
        self._operations.delete(_request(request), request.id, request.timeout)
        return Empty()

    @answering
    def Invoke(self, request: pb.InvokeRequest, context: ServicerContext) -> pb.InvokeResponse:
        """Run one of the provider's functions."""
        result = self._operations.invoke(request.tok, from_struct(request.args))
        response = pb.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(result))
        return response


def _token(request: Message) -> str:
    token = str(getattr(request, "type", ""))
    return token or _urn(request).split("::")[2].rpartition("$")[2]


def _urn(request: Message) -> str:
    return str(getattr(request, "urn", ""))


def _request(request: Message) -> Request:
    return Request(urn=_urn(request), token=_token(request))


def _arguments(given: Object) -> Object:
    """Read a provider's arguments: the SDK sends everything but text as JSON."""

    def read(value: object) -> object:
        if isinstance(value, str) and value[:1] in ("{", "["):
            return json.loads(value)
        return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value

    return {key: read(plain(value)) for key, value in given.items() if value is not None}


def _marked(outputs: Object, inputs: Object) -> Object:
    """Mark as secret in the outputs what is secret in the inputs."""
    bare = {key: value for key, value in outputs.items() if not isinstance(value, Secret)}
    marked: Object = with_secrets(bare, secret_paths(inputs))
    return {**outputs, **marked}


def _failure(mistake: Mistake) -> pb.CheckFailure:
    return pb.CheckFailure(property=path_text(mistake.path), reason=mistake.reason)


def serve(cloud: Cloud, arguments: Sequence[str]) -> None:
    """Serve the engine that started this process; arguments are those that it gave."""
    provider = Provider(cloud, plugin.engine_address(arguments))

    def register(server: grpc.Server) -> None:
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)

    plugin.serve(register, on_end=lambda: None)
