"""What one cloud is made of: its types, its functions, and what holds for all of its resources. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from twin.clouds.faults import Kind
from twin.clouds.model import Inputs, Making, Outputs, ResourceType, Settings
from twin.clouds.wire.check import Mistake
from twin.clouds.wire.model import Wire
from twin.clouds.world import Resource, World
from twin.pulumi.provider.convert import Object

Function = Callable[[Inputs, Settings, World], Object]


class Complete(Protocol):
    """Adds to a program's inputs what the provider's own settings say."""

    def __call__(self, inputs: Object, wire: Wire, settings: Settings) -> Object:
        """Return the inputs with region or location and tags."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """One cloud.

    Attributes:
        name: aws or azure-native.
        types: by token.
        functions: by token.
        throttled: the cloud's word for a refusal for the rate.
        complete: adds to inputs what the provider's settings say.
        adds: what the cloud answers of any resource.
        faults: what is wrong with any resource's inputs, such as its region.
        settings: reads the provider's own arguments.
        goes_with: a resource and all that goes when it goes.
        volumes: what can be mounted, by volume handle, and by whom.
        says: the cloud's words for a lack of capacity and for a time-out.
    """

    name: str
    types: Mapping[str, ResourceType]
    functions: Mapping[str, Function]
    throttled: str
    complete: Complete
    adds: Callable[[Making], Outputs]
    faults: Callable[[Wire, Inputs, Settings], Iterable[Mistake]]
    settings: Callable[[Mapping[str, Any]], Settings]
    goes_with: Callable[[Resource, World], Iterable[Resource]]
    volumes: Callable[[World], Mapping[str, Mapping[str, Any]]]
    says: Callable[[Kind, Resource], str]
