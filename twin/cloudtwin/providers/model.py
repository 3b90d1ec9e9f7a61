"""Tables of a cloud: one record per resource type, one row per rule. Pure.

An *input rule* checks the inputs alone, so it refuses at preview. A *precondition* also checks the
account, so it refuses when the resource is created or updated. A *reference* names another resource, which must
exist and, if it has an `in_use_code`, cannot be deleted first. A *deletion guard* is any other reason
why a service refuses a deletion.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.protocol.values import Object, PropertyValue
from cloudtwin.providers.registries import PrivateRegistry
from cloudtwin.providers.schema.check import CheckFailure
from cloudtwin.providers.schema.model import ResourceSchema

if TYPE_CHECKING:
    from cloudtwin.capacity import Pool

Inputs: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ProviderConfig:
    """Arguments of the provider.

    Attributes:
        cloud: aws or azure-native.
        region: AWS region or Azure location; empty if not set.
        tags: AWS default tags.
    """

    cloud: str
    region: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """API endpoint of a cluster.

    Attributes:
        address: URL of the API server.
        ca: CA certificate, base64-encoded PEM.
    """

    address: str
    ca: str


@dataclass(frozen=True, kw_only=True)
class ResourceRequest:
    """A resource to create or update.

    Attributes:
        inputs: checked inputs without unknown values.
        config: arguments of the provider.
        account: resources that are ready.
        entropy: random hexadecimal digits for a new id. Other generated values derive from the id,
            so that they stay the same for the life of the resource.
        id: id of the resource; empty until it is identified.
        created_at: seconds since the epoch.
        previous: the resource before the update; None for a creation.
        unfinished: resources whose creation has not finished. Their addresses and names are already in use.
    """

    inputs: Inputs
    config: ProviderConfig
    account: Inventory
    entropy: str
    id: str = ""
    created_at: float = 0.0
    previous: Resource | None = None
    unfinished: Inventory = field(default_factory=Inventory)

    def digits(self, purpose: str, length: int) -> str:
        """Return hexadecimal digits that are fixed for the resource and the purpose."""
        return hashlib.sha256(f"{self.id}/{purpose}".encode()).hexdigest()[:length]

    @property
    def region(self) -> str:
        """Region or location of the resource: its own, else the provider's."""
        region = self.inputs.get("region" if self.config.cloud == "aws" else "location")
        return str(region or self.config.region)

    def find(self, token: str, path: str, key: str = "id") -> Resource | None:
        """Return the resource of a type to which a top-level input refers."""
        value = self.inputs.get(path)
        return self.account.find((token,), value, key) if value else None

    def others(self, token: str) -> Iterator[Resource]:
        """Yield the other resources of a type, including resources whose creation has not finished."""
        for resource in (*self.account.all(token), *self.unfinished.all(token)):
            if resource.id.lower() != self.id.lower():
                yield resource


ValueCheck: TypeAlias = Callable[[Any], str | None]
InputCheck: TypeAlias = Callable[[Inputs], Iterable[CheckFailure]]
RequestCheck: TypeAlias = Callable[[ResourceRequest], Iterable[str]]


@dataclass(frozen=True)
class InputRule:
    """A constraint on the inputs alone.

    Attributes:
        name: unique name; the tests have a valid and an invalid case for it.
        source: documentation of the service that states it.
        violations: function that yields the failures; they are ignored if it reads an unknown value.
    """

    name: str
    source: str
    violations: InputCheck


@dataclass(frozen=True)
class Precondition:
    """A constraint on the account at creation or update.

    Attributes:
        name: unique name; the tests have a valid and an invalid account for it.
        source: documentation of the service that states it.
        code: error code of the service.
        violations: function that yields the reasons for a refusal.
    """

    name: str
    source: str
    code: str
    violations: RequestCheck


@dataclass(frozen=True)
class DeletionGuard:
    """A reason to refuse a deletion that is not a reference.

    Attributes:
        name: unique name.
        source: documentation of the service that states it.
        code: error code of the service.
        violations: function that yields the reasons for a refusal.
    """

    name: str
    source: str
    code: str
    violations: Callable[[Resource, Inventory], Iterable[str]]


@dataclass(frozen=True)
class Reference:
    """An input that refers to other resources.

    Attributes:
        path: path of the values, such as `vpcConfig.subnetIds.*`.
        tokens: tokens of the possible types.
        code: error code if the resource does not exist.
        in_use_code: error code if the resource is deleted first; empty if that is allowed.
        key: `id`, or the output that the value equals.
        external: prefixes of values that are assumed to exist, such as the ARNs of AWS managed policies.
        required: text that identifies the values that must exist, such as the account in an ARN. Other values are
            assumed to exist, because the twin has only its own account.
    """

    path: str
    tokens: tuple[str, ...]
    code: str = "NotFound"
    in_use_code: str = ""
    key: str = "id"
    external: tuple[str, ...] = ()
    required: str = ""


@dataclass(frozen=True)
class Naming:
    """The input that names a resource.

    Attributes:
        property: name of the input.
        max_length: maximum length in characters.
        generated: True if the provider generates a missing name.
        start: beginning of a name that is generated without a declared prefix.
    """

    property: str = "name"
    max_length: int = 255
    generated: bool = True
    start: str = ""


def no_outputs(request: ResourceRequest) -> Outputs:  # noqa: ARG001  the signature of `describe`
    """Return no outputs in addition to the inputs."""
    return {}


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One resource type.

    Attributes:
        token: type token of the engine.
        identify: function that returns the id in the format of the official provider.
        describe: function that returns the outputs that the service adds to the inputs.
        defaults: outputs that the service fills in if the input is absent.
        naming: the input that names the resource; None if it has no name.
        immutable: input paths whose change replaces the resource.
        replacing_inputs: function that returns the inputs whose change from old to new inputs replaces the resource,
            although another change of them would not.
        enums: input path -> values, where neither SDK nor service model lists them.
        rules, preconditions, deletion_guards, references: constraints.
        unique: inputs whose combination no two resources may share.
        unique_code: error code of the service for a duplicate.
        parent: function that returns the ARM id of the parent, which must exist; empty for none.
        companions: function that yields resources that the service creates with it, such as a cluster's security group.
        exclusive_key: function that returns the name of the object that accepts one write at a time; empty for none.
        exclusive_code: error code of a concurrent write.
        drivers: function that returns the storage drivers that it controls, and whether it installs each.
        pod_identity: function that returns namespace and name of the ServiceAccount whose pods get credentials.
        cluster_outputs: function that returns the outputs with the endpoint; None if this is not a cluster.
        pools: function that returns the machine pools that it declares.
        current_inputs: function that returns the service's current inputs, given current pool sizes by name.
        pools_sized_by_update: function that returns the names of the pools whose size an update from old to new inputs
            sends; the others keep their current size.
        revised_outputs: function that returns the outputs that an update from old to new inputs changes.
        image_repository: function that returns the host and path of the image repository; None for another type.
    """

    token: str
    identify: Callable[[ResourceRequest], str]
    describe: Callable[[ResourceRequest], Outputs] = no_outputs
    defaults: Mapping[str, PropertyValue] = field(default_factory=dict)
    naming: Naming | None = None
    immutable: tuple[str, ...] = ()
    replacing_inputs: Callable[[Inputs, Inputs], Collection[str]] | None = None
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[InputRule, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    deletion_guards: tuple[DeletionGuard, ...] = ()
    references: tuple[Reference, ...] = ()
    unique: tuple[str, ...] = ()
    unique_code: str = "AlreadyExists"
    parent: Callable[[str], str] | None = None
    companions: Callable[[Resource, Inventory], Iterable[Resource]] | None = None
    exclusive_key: Callable[[Inputs], str] | None = None
    exclusive_code: str = ""
    drivers: Callable[[Inputs], Mapping[str, bool]] | None = None
    pod_identity: Callable[[Inputs], tuple[str, str]] | None = None
    cluster_outputs: Callable[[Resource, Endpoint], Outputs] | None = None
    pools: Callable[[Resource, Inventory], Sequence["Pool"]] | None = None
    current_inputs: Callable[[Inputs, Mapping[str, int]], Inputs] | None = None
    pools_sized_by_update: Callable[[Inputs, Inputs], Collection[str]] | None = None
    revised_outputs: Callable[[Inputs, Inputs], Iterable[str]] | None = None
    image_repository: Callable[[Resource], str] | None = None

    @property
    def title(self) -> str:
        """Short name for messages."""
        return self.token.rpartition(":")[2]


Function: TypeAlias = Callable[[Inputs, ProviderConfig, Inventory], Object]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """One cloud.

    Attributes:
        name: aws or azure-native.
        types: records by token.
        functions: provider functions by token.
        throttling_code: error code for a throttled request.
        with_defaults: function that adds the provider's region, location and tags to inputs.
        common_outputs: function that returns the outputs that every resource has.
        common_rules: function that yields the failures in any resource's inputs, such as an invalid region.
        limits: function that returns the limits of a type by input path, from the service models.
        configure: function that reads the provider's arguments.
        deleted_with: function that yields a resource and all resources that are deleted with it.
        volumes: function that returns the mountable volumes by handle, and who may mount them.
        registries: function that returns the image registries by host, and who may pull from them.
        timeout_message: function that returns the message for a resource that is not ready in time.
        authorize: function that raises CloudError if the caller may not create, update or delete a type of resource,
            given the folder of the account; None if everything is allowed.
        may_push: function that returns True if the caller may push to the account's registries, given the folder of
            the account; None if it always may.
    """

    name: str
    types: Mapping[str, ResourceType]
    functions: Mapping[str, Function]
    throttling_code: str
    with_defaults: Callable[[Object, ResourceSchema, ProviderConfig], Object]
    common_outputs: Callable[[ResourceRequest], Outputs]
    common_rules: Callable[[ResourceSchema, Inputs, ProviderConfig], Iterable[CheckFailure]]
    limits: Callable[[str], Mapping[str, Mapping[str, Any]]]
    configure: Callable[[Mapping[str, Any]], ProviderConfig]
    deleted_with: Callable[[Resource, Inventory], Iterable[Resource]]
    volumes: Callable[[Inventory], Mapping[str, Mapping[str, Any]]]
    registries: Callable[[Inventory], Mapping[str, PrivateRegistry]]
    timeout_message: Callable[[Resource], str]
    authorize: Callable[[Path, str, str], None] | None = None
    may_push: Callable[[Path], bool] | None = None
