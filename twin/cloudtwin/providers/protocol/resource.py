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
    """One input that is wrong.

    Attributes:
        property: its path, in Pulumi's spelling; empty for the whole resource.
        reason: description of the mistake.
    """

    property: str
    reason: str


@dataclass(frozen=True)
class ResourceState:
    """A resource as the engine keeps it in its state.

    Attributes:
        identity: its ID.
        outputs: its outputs.
        inputs: the inputs that produce them.
    """

    identity: str
    outputs: Object
    inputs: Object


@dataclass(frozen=True)
class PartialState:
    """A resource that exists but is not as declared. The engine keeps it; the next update resumes.

    Attributes:
        state: the resource as it is.
        reasons: differences from the declaration.
    """

    state: ResourceState
    reasons: Sequence[str]
