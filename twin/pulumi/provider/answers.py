"""How the failure of an operation reaches the engine: for the user, half done, or a fault of ours."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import NoReturn, Protocol, TypeVar

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from grpc import ServicerContext
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import status_pb2

from everstep.errors import EverstepError
from twin.pulumi.provider.convert import Object, to_struct
from twin.pulumi.provider.errors import ProviderError

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Partial:
    """A resource that is there but not as wanted: the engine keeps it, the next update goes on from there.

    Attributes:
        identity: the resource's id.
        outputs: as it is now.
        inputs: those that it was made from.
        reasons: why it is not as wanted.
    """

    identity: str
    outputs: Object
    inputs: Object
    reasons: Sequence[str]


class Provider(Protocol):
    """What a provider says of itself and of its failures."""

    @property
    def title(self) -> str:
        """What the user calls it, in a sentence."""

    def partial(self, request: Message, error: Exception) -> Partial | None:
        """Return what an operation that failed has left, if it has left a resource."""


def answering(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Turn the errors of a provider's operation into the engine's."""

    @wraps(method)
    def answer(self: Provider, request: Message, context: ServicerContext) -> Answer:
        try:
            return method(self, request, context)
        except Exception as error:
            failure = error
        # Outside the except block: abort ends the call by an exception of its own.
        _abort(context, failure, self.title, self.partial(request, failure))

    return answer


def _abort(
    context: ServicerContext, error: Exception, title: str, partial: Partial | None
) -> NoReturn:
    if partial:
        details = _packed(partial, str(error))
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode.UNKNOWN, str(error))
    if isinstance(error, ProviderError | EverstepError):
        # Not UNKNOWN or INTERNAL: the engine would believe that the resource may exist after all.
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    what = "".join(traceback.format_exception(error))
    context.abort(grpc.StatusCode.INTERNAL, f"a fault of {title}, please report it:\n{what}")
    raise AssertionError("abort raises")


def _packed(partial: Partial, message: str) -> bytes:
    detail = any_pb2.Any()
    detail.Pack(
        pb.ErrorResourceInitFailed(
            id=partial.identity,
            properties=to_struct(partial.outputs),
            reasons=partial.reasons,
            inputs=to_struct(partial.inputs),
        )
    )
    code = grpc.StatusCode.UNKNOWN.value[0]
    status = status_pb2.Status(code=code, message=message, details=[detail])
    return bytes(status.SerializeToString())
