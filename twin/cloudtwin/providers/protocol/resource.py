"""Resources as providers and the engine exchange them, without gRPC."""

from collections.abc import Sequence
from dataclasses import dataclass

from cloudtwin.providers.protocol.values import Object


@dataclass(frozen=True, kw_only=True)
class ResourceKey:
    """The resource that a request is about.

    Attributes:
        urn: its URN.
        token: its type, such as `aws:ec2/vpc:Vpc`.
    """

    urn: str
    token: str

    @property
    def name(self) -> str:
        """The name of the program's resource."""
        return self.urn.rpartition("::")[2]


@dataclass(frozen=True)
class InputFailure:
    """One invalid input.

    Attributes:
        property: its path, in Pulumi's spelling; empty for the whole resource.
        reason: description of the failure.
    """

    property: str
    reason: str


@dataclass(frozen=True)
class ResourceState:
    """A resource as the engine keeps it in its state.

    Attributes:
        identity: its id.
        outputs: its outputs.
        inputs: the inputs that produce them.
    """

    identity: str
    outputs: Object
    inputs: Object


@dataclass(frozen=True)
class PartialState:
    """A resource that exists but is incomplete. The engine keeps it, and the next update continues.

    Attributes:
        state: the resource as it is.
        reasons: reasons why it is incomplete.
    """

    state: ResourceState
    reasons: Sequence[str]
