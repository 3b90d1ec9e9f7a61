"""The errors of the provider, in one tree.

ProviderError: the operation failed; its text is for the user.
    UnreachableError: the cluster does not answer.
    UnknownKindError: the cluster serves no such kind.
    RefusedError: the API server said no; carries its HTTP code.
        ConflictError: others own fields that the program sets.
    NotReadyError: the object exists but did not become ready; carries it, so that nothing is lost.
"""

from typing import Any

from twin.pulumi.provider.errors import ProviderError


class UnreachableError(ProviderError):
    """The cluster does not answer."""


class UnknownKindError(ProviderError):
    """The cluster serves no such kind, or not yet."""


class RefusedError(ProviderError):
    """The API server refused a request.

    Attributes:
        code: HTTP status code.
        reason: the API server's word for it, such as NotFound or Invalid.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class ConflictError(RefusedError):
    """Other managers own fields that the program wants to set."""


class NotReadyError(ProviderError):
    """The object exists but did not become ready.

    Attributes:
        live: the object as last seen.
        reasons: why it is not ready, most telling first.
        inputs: those that it was made from.
    """

    def __init__(
        self, live: dict[str, Any], reasons: list[str], inputs: dict[str, Any] | None = None
    ) -> None:
        super().__init__("\n".join(reasons))
        self.live = live
        self.reasons = reasons
        self.inputs = inputs or {}
