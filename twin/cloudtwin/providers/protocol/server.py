"""The gRPC service of a resource provider: one base for all providers of this package.

`ProviderServer` translates between the engine's messages and plain Python values, and turns the
errors of operations into the engine's. A provider derives from it and implements the operations.
"""

# ruff: noqa: N802, ARG002  (gRPC names the methods and passes each of them the same arguments)

import json
import logging
import traceback
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import ClassVar, NoReturn, TypeVar

import grpc
from google.protobuf import any_pb2
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from grpc import ServicerContext
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as pb

from cloudtwin.errors import TwinError
from cloudtwin.providers.protocol.diff import Diff
from cloudtwin.providers.protocol.engine_client import EngineClient
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.resource import (
    InputFailure,
    PartialState,
    ResourceKey,
    ResourceState,
)
from cloudtwin.providers.protocol.values import (
    Object,
    from_struct,
    has_unknown,
    plain,
    redact,
    secret_texts,
    to_struct,
)
from cloudtwin.pulumi import plugin

Response = TypeVar("Response")


def _with_engine_errors(method: Callable[..., Response]) -> Callable[..., Response]:
    """Convert the errors of an operation into the engine's."""

    @wraps(method)
    def handle(self: "ProviderServer", request: Message, context: ServicerContext) -> Response:
        try:
            return method(self, request, context)
        except Exception as error:
            failure = error
        # Outside the except block: abort raises its own exception to end the call.
        _abort(context, request, failure, self.title, self.partial_state(request, failure))

    return handle


class ProviderServer(provider_pb2_grpc.ResourceProviderServicer):
    """One provider instance, with the methods that the engine calls.

    Attributes:
        package: the name of the Pulumi package.
        title: the provider's name in messages for the user.
        banner: the first message in the debug log.
        engine: the engine's log.
    """

    package: str
    title: str
    banner: ClassVar[str]

    def __init__(self, engine_address: str) -> None:
        self.engine = EngineClient(engine_address)

    # -- operations of the derived provider, in plain values

    @property
    @abstractmethod
    def version(self) -> str:
        """The version that the SDK requires."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel all waits. Resources that exist keep their state."""

    @abstractmethod
    def configure(self, arguments: Object) -> None:
        """Accept the provider's arguments."""

    @abstractmethod
    def check_configuration(self, arguments: Object) -> None:
        """Raise ProviderError if the arguments cannot be used."""

    @abstractmethod
    def replacing_arguments(self, old: Object, new: Object) -> Sequence[str]:
        """Return the changed or unknown arguments that require every resource to be replaced."""

    @abstractmethod
    def check(
        self, key: ResourceKey, old: Object, new: Object, seed: bytes
    ) -> tuple[Object, Sequence[InputFailure]]:
        """Return the completed inputs and the failures in them."""

    @abstractmethod
    def diff(self, key: ResourceKey, old: Object, new: Object, ignored: Sequence[str], /) -> Diff:
        """Compare last and new inputs."""

    @abstractmethod
    def preview(self, key: ResourceKey, inputs: Object, outputs: Object) -> Object:
        """Return the expected outputs. `outputs` are the existing outputs, empty for a new resource."""

    @abstractmethod
    def create(self, key: ResourceKey, inputs: Object, seconds: float) -> tuple[str, Object]:
        """Create a resource within `seconds` (0: the default). Return its id and outputs."""

    @abstractmethod
    def update(
        self, key: ResourceKey, old: ResourceState, inputs: Object, seconds: float, ignored: Sequence[str], /
    ) -> Object:  # fmt: skip
        """Update a resource within `seconds` (0: the default). Return its outputs."""

    @abstractmethod
    def read(self, key: ResourceKey, old: ResourceState) -> ResourceState | None:
        """Read a resource for a refresh or an import. Return None if it does not exist."""

    @abstractmethod
    def delete(self, key: ResourceKey, old: ResourceState, seconds: float) -> None:
        """Delete a resource within `seconds` (0: the default) and wait until it is gone."""

    @abstractmethod
    def invoke(self, token: str, arguments: Object) -> Object:
        """Return the result of one of the provider's functions."""

    def partial_state(self, request: Message, error: Exception, /) -> PartialState | None:
        """Return the resource that a failed operation left, if any."""
        return None

    # -- gRPC: the provider

    def Handshake(
        self, request: pb.ProviderHandshakeRequest, context: ServicerContext
    ) -> pb.ProviderHandshakeResponse:
        """Agree on the protocol: secrets arrive marked."""
        self._connect(request.engine_address)
        self.engine.log(logging.DEBUG, "", self.banner)
        return pb.ProviderHandshakeResponse(accept_secrets=True)

    def Attach(self, request: plugin_pb2.PluginAttach, context: ServicerContext) -> Empty:
        """Serve an engine that found this process running."""
        self._connect(request.address)
        return Empty()

    def _connect(self, address: str) -> None:
        self.engine = EngineClient(address)

    @_with_engine_errors
    def GetPluginInfo(self, request: Empty, context: ServicerContext) -> plugin_pb2.PluginInfo:
        """Return the version."""
        return plugin_pb2.PluginInfo(version=self.version)

    @_with_engine_errors
    def GetSchema(
        self, request: pb.GetSchemaRequest, context: ServicerContext
    ) -> pb.GetSchemaResponse:
        """Return a schema without types: the SDKs contain them."""
        schema = {"name": self.package, "version": self.version}
        return pb.GetSchemaResponse(schema=json.dumps(schema))

    def Cancel(self, request: Empty, context: ServicerContext) -> Empty:
        """Cancel all waits."""
        self.cancel()
        return Empty()

    @_with_engine_errors
    def CheckConfig(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Refuse arguments that cannot be used."""
        arguments = from_struct(request.news)
        failures = []
        try:
            if not has_unknown(arguments):
                self.check_configuration(arguments)
        except ProviderError as error:
            failures.append(pb.CheckFailure(reason=str(error)))
        return pb.CheckResponse(inputs=request.news, failures=failures)

    @_with_engine_errors
    def DiffConfig(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Compare the provider's arguments."""
        old, new = plain(from_struct(request.old_inputs)), plain(from_struct(request.news))
        changed_keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if not changed_keys:
            return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)
        replaces = self.replacing_arguments(old, new)
        return pb.DiffResponse(
            changes=pb.DiffResponse.DIFF_SOME, diffs=changed_keys, replaces=replaces
        )

    @_with_engine_errors
    def Configure(
        self, request: pb.ConfigureRequest, context: ServicerContext
    ) -> pb.ConfigureResponse:
        """Accept the provider's arguments."""
        self.configure(from_struct(request.args))
        return pb.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    # -- gRPC: resources

    @_with_engine_errors
    def Check(self, request: pb.CheckRequest, context: ServicerContext) -> pb.CheckResponse:
        """Complete a resource's inputs and return the failures in them."""
        inputs, failures = self.check(
            key_of(request),
            from_struct(request.olds),
            from_struct(request.news),
            request.randomSeed,
        )
        return pb.CheckResponse(
            inputs=to_struct(inputs),
            failures=[pb.CheckFailure(property=f.property, reason=f.reason) for f in failures],
        )

    @_with_engine_errors
    def Diff(self, request: pb.DiffRequest, context: ServicerContext) -> pb.DiffResponse:
        """Compare last and new inputs."""
        old, new = from_struct(request.old_inputs), from_struct(request.news)
        return self.diff(key_of(request), old, new, list(request.ignoreChanges)).response()

    @_with_engine_errors
    def Create(self, request: pb.CreateRequest, context: ServicerContext) -> pb.CreateResponse:
        """Create a resource, or preview it."""
        inputs = from_struct(request.properties)
        if request.preview:
            expected = self.preview(key_of(request), inputs, {})
            return pb.CreateResponse(properties=to_struct(expected))
        identity, outputs = self.create(key_of(request), inputs, request.timeout)
        return pb.CreateResponse(id=identity, properties=to_struct(outputs))

    @_with_engine_errors
    def Update(self, request: pb.UpdateRequest, context: ServicerContext) -> pb.UpdateResponse:
        """Update a resource, or preview the update."""
        inputs, key = from_struct(request.news), key_of(request)
        old = ResourceState(request.id, from_struct(request.olds), from_struct(request.old_inputs))
        if request.preview:
            outputs = self.preview(key, inputs, old.outputs)
        else:
            ignored = list(request.ignoreChanges)
            outputs = self.update(key, old, inputs, request.timeout, ignored)
        return pb.UpdateResponse(properties=to_struct(outputs))

    @_with_engine_errors
    def Read(self, request: pb.ReadRequest, context: ServicerContext) -> pb.ReadResponse:
        """Read a resource for a refresh or an import."""
        state = self.read(key_of(request), _old_state(request))
        if state is None:
            return pb.ReadResponse()
        return pb.ReadResponse(
            id=state.identity,
            properties=to_struct(state.outputs),
            inputs=to_struct(state.inputs),
        )

    @_with_engine_errors
    def Delete(self, request: pb.DeleteRequest, context: ServicerContext) -> Empty:
        """Delete a resource and wait until it is gone."""
        old = ResourceState(
            request.id, from_struct(request.properties), from_struct(request.old_inputs)
        )
        self.delete(key_of(request), old, request.timeout)
        return Empty()

    @_with_engine_errors
    def Invoke(self, request: pb.InvokeRequest, context: ServicerContext) -> pb.InvokeResponse:
        """Run one of the provider's functions."""
        result = self.invoke(request.tok, from_struct(request.args))
        response = pb.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(result))
        return response


def key_of(request: Message) -> ResourceKey:
    """Return the resource that a request is about. Old engines send a URN and no type."""
    urn, token = str(getattr(request, "urn", "")), str(getattr(request, "type", ""))
    return ResourceKey(urn=urn, token=token or urn.split("::")[2].rpartition("$")[2])


def _old_state(request: pb.ReadRequest) -> ResourceState:
    return ResourceState(request.id, from_struct(request.properties), from_struct(request.inputs))


def _abort(
    context: ServicerContext,
    request: Message,
    error: Exception,
    title: str,
    partial: PartialState | None,
) -> NoReturn:
    secrets = _secret_texts(request)
    message = redact(str(error), secrets)
    if partial:
        reasons = [redact(reason, secrets) for reason in partial.reasons]
        details = _pack_details(replace(partial, reasons=reasons), message)
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode.UNKNOWN, message)
    if isinstance(error, ProviderError | TwinError):
        # UNKNOWN or INTERNAL would make the engine assume that the resource may exist.
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
    text = redact("".join(traceback.format_exception(error)), secrets)
    context.abort(grpc.StatusCode.INTERNAL, f"a bug in {title}, please report it:\n{text}")
    raise AssertionError("abort raises")


def _secret_texts(request: Message) -> list[str]:
    """Return the texts in the secret values of a request."""
    structs = (value for _, value in request.ListFields() if isinstance(value, Struct))
    try:
        return [text for struct in structs for text in secret_texts(from_struct(struct))]
    except ProviderError:  # an asset, which is the error to report
        return []


def _pack_details(partial: PartialState, message: str) -> bytes:
    detail = any_pb2.Any()
    detail.Pack(
        pb.ErrorResourceInitFailed(
            id=partial.state.identity,
            properties=to_struct(partial.state.outputs),
            reasons=partial.reasons,
            inputs=to_struct(partial.state.inputs),
        )
    )
    code = grpc.StatusCode.UNKNOWN.value[0]
    status = status_pb2.Status(code=code, message=message, details=[detail])
    return bytes(status.SerializeToString())


def serve(make: Callable[[str], ProviderServer], arguments: Sequence[str]) -> None:
    """Serve the engine that started this process.

    Args:
        make: function that returns the provider for the engine's address.
        arguments: the command line.
    """
    provider = make(plugin.engine_address(arguments))

    def register(server: grpc.Server) -> None:
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)

    plugin.serve(register, on_end=lambda: None)
