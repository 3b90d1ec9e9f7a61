"""The errors of the provider, in one tree.

ProviderError: the operation failed; the text is for the user.
    UnreachableError: the cluster does not respond.
    UnknownKindError: the cluster does not serve the kind.
    RefusedError: the API server refused a request; carries the HTTP code.
        ConflictError: other field managers own fields that the program sets.
    NotReadyError: the object exists but is not ready; carries the object.
    IncompleteObjectError: the same for the engine; carries the outputs and inputs that the state keeps.
"""

from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object


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
        live: the object as last read.
        reasons: reasons why it is not ready, most specific first.
    """

    def __init__(self, live: Object, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.live = live
        self.reasons = reasons


class IncompleteObjectError(ProviderError):
    """Error for a resource whose object exists but is not ready. The engine keeps it, and the next update continues.

    Attributes:
        outputs: its outputs.
        inputs: its inputs.
        reasons: reasons why it is not ready, most specific first.
    """

    def __init__(self, outputs: Object, inputs: Object, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.outputs = outputs
        self.inputs = inputs
        self.reasons = reasons
