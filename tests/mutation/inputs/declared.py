"""The resources that the cloud stacks declare, created in an account of the twin without machines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtwin.providers import aws, azure
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.machines import Offline
from cloudtwin.providers.model import Cloud, ProviderConfig
from cloudtwin.providers.operations import Operations
from cloudtwin.providers.protocol.resource import ResourceKey
from cloudtwin.providers.protocol.values import plain as without_secrets
from pulumi.runtime import mocks

from components import environment
from components.docs import stack_table
from components.stack import TrainingStack, TrainingStackArgs
from tests.components.provider_outputs import ProviderOutputs
from tests.components.recorder import deserialize, record

CLOUDS: Mapping[str, Cloud] = {"aws": aws.CLOUD, "azure-native": azure.CLOUD}
STACKS: Mapping[str, tuple[str, ...]] = {
    "aws": ("eks-dev", "eks-prod"),
    "azure-native": ("aks-dev", "aks-prod"),
}
SEED = b"everstep"
CREATE_SECONDS = (
    200.0  # limit on a busy machine; without machines, a resource is complete within a second
)


@dataclass(frozen=True, kw_only=True)
class DeclaredResource:
    """One resource that a stack declares.

    Attributes:
        stack: name of the stack.
        name: logical name of the resource.
        token: type token.
        inputs: inputs as the program sends them.
        config: arguments of its provider.
        prior_account: the account before the resource was created.
    """

    stack: str
    name: str
    token: str
    inputs: Mapping[str, Any]
    config: ProviderConfig
    prior_account: Inventory

    @property
    def key(self) -> ResourceKey:
        """Key in the engine's requests to the provider."""
        return ResourceKey(urn=f"urn:pulumi:s::p::{self.token}::{self.name}", token=self.token)


def declare_resources(
    cloud: str, folder: Path, stacks: Sequence[str] = ()
) -> Iterator[DeclaredResource]:
    """Yield the resources of a cloud's stacks.

    Args:
        cloud: aws or azure-native.
        folder: an empty folder for the accounts.
        stacks: names of the stacks; default: all.
    """
    for stack in stacks or STACKS[cloud]:
        account = _TwinOutputs(cloud, stack, folder / stack)
        config = stack_table.read(stack_table.STACKS / f"Pulumi.{stack}.yaml")

        def program() -> Mapping[str, Any]:
            context = environment.declare(config, stack)  # noqa: B023  it runs within the same iteration
            args = TrainingStackArgs(config=config, cluster=context.cluster, volume=context.volume)  # noqa: B023
            return {**context.outputs, **TrainingStack("training", args).outputs}

        record(program, account)
        yield from account.declared


@dataclass
class _TwinOutputs(ProviderOutputs):
    """Mocks that create the resources of one cloud in an account of the twin."""

    cloud: str
    stack: str
    folder: Path
    declared: list[DeclaredResource] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._operations = Operations(CLOUDS[self.cloud], self.folder, Offline())

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ == f"pulumi:providers:{self.cloud}":
            arguments = {key: _read(value) for key, value in args.inputs.items()}
            self._operations.config = CLOUDS[self.cloud].configure(arguments)
        if not args.typ.startswith(f"{self.cloud}:"):
            return super().new_resource(args)
        resource = DeclaredResource(
            stack=self.stack, name=args.name, token=args.typ, inputs=_sorted(deserialize(dict(args.inputs))),
            config=self._operations.config, prior_account=self._operations.account.read(),
        )  # fmt: skip
        self.declared.append(resource)
        inputs, failures = self._operations.check(resource.key, {}, dict(resource.inputs), SEED)
        if failures:
            raise AssertionError(f"{args.typ} {args.name}: {failures}")
        identity, outputs = self._operations.create(resource.key, inputs, CREATE_SECONDS)
        return identity, without_secrets(outputs)

    def call(  # type: ignore[override]  # as in the base class
        self, args: mocks.MockCallArgs
    ) -> dict[str, Any]:
        if args.token in CLOUDS[self.cloud].functions:
            arguments = deserialize(dict(args.args))
            result: dict[str, Any] = without_secrets(self._operations.invoke(args.token, arguments))
            return result
        return super().call(args)


def _read(value: object) -> object:
    """Return an argument of a provider, which the SDK sends as JSON unless it is text."""
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _sorted(value: Any) -> Any:
    """Return a value with sorted keys: the SDK sends inputs in the order in which they become available."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
