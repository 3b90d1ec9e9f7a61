"""The gRPC service of a cloud: the engine's requests become operations on the account."""

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from google.protobuf.message import Message
from pulumi.runtime.proto import provider_pb2 as pb

from cloudtwin.paths import state_directory
from cloudtwin.providers import BANNER
from cloudtwin.providers.errors import IncompleteError
from cloudtwin.providers.machines import machines
from cloudtwin.providers.model import Cloud
from cloudtwin.providers.operations import Operations
from cloudtwin.providers.protocol import server
from cloudtwin.providers.protocol.diff import Diff
from cloudtwin.providers.protocol.resource import (
    InputFailure,
    PartialState,
    ResourceKey,
    ResourceState,
)
from cloudtwin.providers.protocol.values import (
    Object,
    Secret,
    from_struct,
    has_unknown,
    path_text,
    plain,
    secret_paths,
    with_secrets,
)
from cloudtwin.providers.schema.store import sdk_version

# Request that can leave a resource incomplete -> its field with the inputs.
INPUT_FIELDS: Mapping[type[Message], str] = {
    pb.CreateRequest: "properties", pb.UpdateRequest: "news", pb.ReadRequest: "inputs",
}  # fmt: skip


class Provider(server.ProviderServer):
    """One provider instance, of one cloud."""

    banner: ClassVar[str] = BANNER

    def __init__(self, cloud: Cloud, engine_address: str) -> None:
        super().__init__(engine_address)
        self.package, self.title = cloud.name, f"the twin's {cloud.name}"
        self._cloud = cloud
        state = state_directory()
        self._operations = Operations(cloud, state, machines(state))
        self._connect(engine_address)

    def _connect(self, address: str) -> None:
        super()._connect(address)
        self._operations.report = self.engine.status

    @property
    def version(self) -> str:
        """The version that the SDK requires."""
        return sdk_version(self._cloud.name)

    def partial_state(self, request: Message, error: Exception) -> PartialState | None:
        """Return the state of a resource that exists but is incomplete; None for other errors."""
        if not isinstance(error, IncompleteError):
            return None
        inputs = from_struct(getattr(request, INPUT_FIELDS[type(request)]))
        token = server.key_of(request).token
        resource = self._operations.account.read().find((token,), error.identity)
        if resource and not inputs:  # an import
            inputs = dict(resource.inputs)
        outputs = dict(resource.outputs) if resource else plain(inputs)
        state = ResourceState(error.identity, _mark_secrets(outputs, inputs), inputs)
        return PartialState(state, error.reasons)

    def cancel(self) -> None:
        """Cancel all waits. Resources that exist keep their state."""
        self._operations.cancelled.set()

    def check_configuration(self, arguments: Object) -> None:
        """Raise ProviderError if the arguments cannot be used."""
        self._cloud.configure(_arguments(arguments))

    def replacing_arguments(self, old: Object, new: Object) -> Sequence[str]:
        """Return the changed arguments that require every resource to be replaced."""
        if has_unknown(new):
            return []
        keys = ("region", "subscriptionId")
        return [key for key in keys if old.get(key) != new.get(key)]

    def configure(self, arguments: Object) -> None:
        """Set the provider's arguments."""
        self._operations.config = self._cloud.configure(_arguments(arguments))

    def check(
        self, key: ResourceKey, old: Object, new: Object, seed: bytes
    ) -> tuple[Object, Sequence[InputFailure]]:
        """Return the completed inputs and the failures in them."""
        inputs, failures = self._operations.check(key, old, new, seed)
        return inputs, [
            InputFailure(path_text(failure.path), failure.reason) for failure in failures
        ]

    def diff(self, key: ResourceKey, old: Object, new: Object, ignored: Sequence[str]) -> Diff:
        """Compare last and new inputs."""
        return self._operations.diff(key, old, new, list(ignored))

    def preview(self, key: ResourceKey, inputs: Object, outputs: Object) -> Object:
        """Return the expected outputs."""
        return _mark_secrets(self._operations.preview(key, inputs, outputs), inputs)

    def create(self, key: ResourceKey, inputs: Object, seconds: float) -> tuple[str, Object]:
        """Create a resource; return its id and outputs."""
        identity, outputs = self._operations.create(key, inputs, seconds)
        return identity, _mark_secrets(outputs, inputs)

    def update(
        self, key: ResourceKey, old: ResourceState, inputs: Object, seconds: float, _: Sequence[str]
    ) -> Object:  # fmt: skip
        """Update a resource; return its outputs."""
        outputs = self._operations.update(key, old.identity, inputs, seconds)
        return _mark_secrets(outputs, inputs)

    def read(self, key: ResourceKey, old: ResourceState) -> ResourceState | None:
        """Read a resource for a refresh or an import."""
        live = self._operations.read(key, old.identity)
        if live is None:
            return None
        resource, inputs = live
        outputs = _mark_secrets(dict(resource.outputs), old.inputs)
        return ResourceState(resource.id, outputs, _mark_secrets(dict(inputs), old.inputs))

    def delete(self, key: ResourceKey, old: ResourceState, seconds: float) -> None:
        """Delete a resource and wait until it is gone."""
        self._operations.delete(key, old.identity, seconds)

    def invoke(self, token: str, arguments: Object) -> Object:
        """Return the result of one of the provider's functions."""
        return self._operations.invoke(token, arguments)


def _arguments(arguments: Object) -> Object:
    """Return a provider's arguments: the SDK sends every value except strings as JSON."""

    def read(value: object) -> object:
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                return json.loads(value)
            except ValueError:
                return value  # a string that only begins like JSON, such as a password
        return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value

    return {key: read(plain(value)) for key, value in arguments.items() if value is not None}


def _mark_secrets(outputs: Object, inputs: Object) -> Object:
    """Mark the outputs of secret inputs as secret."""
    plain_outputs = {key: value for key, value in outputs.items() if not isinstance(value, Secret)}
    secret_outputs: Object = with_secrets(plain_outputs, secret_paths(inputs))
    return {**outputs, **secret_outputs}


def serve(cloud: Cloud, arguments: Sequence[str]) -> None:
    """Serve the engine that started this process; arguments come from the command line."""
    server.serve(lambda address: Provider(cloud, address), arguments)
