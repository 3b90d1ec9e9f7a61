"""The errors of the provider, in one tree.

ProviderError: the operation failed; the text is for the user.
    UnreachableError: the cluster does not respond.
    UnknownKindError: the cluster does not serve the kind.
    RefusedError: the API server refused a request; carries the HTTP code.
        ConflictError: other field managers own fields that the program sets.
    NotReadyError: the object exists but is not ready; carries the object, so that the state keeps it.
"""

from typing import Any

from cloudtwin.providers.protocol.errors import ProviderError


class UnreachableError(ProviderError):
    """Error for a cluster that does not respond."""


class UnknownKindError(ProviderError):
    """Error for a kind that the cluster does not serve, or not yet."""


class RefusedError(ProviderError):
    """Refusal of a request by the API server.

    Attributes:
        code: HTTP status code.
        reason: Kubernetes' reason, such as NotFound or Invalid.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class ConflictError(RefusedError):
    """Refusal because other field managers own fields that the program sets."""


class NotReadyError(ProviderError):
    """Error for an object that exists but is not ready.

    Attributes:
        live: the object as last read, or the outputs derived from it.
        reasons: reasons why it is not ready, most specific first.
        inputs: its inputs.
    """

    def __init__(
        self, live: dict[str, Any], reasons: list[str], inputs: dict[str, Any] | None = None
    ) -> None:
        super().__init__("\n".join(reasons))
        self.live = live
        self.reasons = reasons
        self.inputs = inputs or {}
