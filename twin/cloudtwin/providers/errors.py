"""Errors of a cloud.

Both are subclasses of the protocol's ProviderError, which the server turns into the engine's responses.
"""

from cloudtwin.providers.protocol.errors import ProviderError


class CloudError(ProviderError):
    """Refusal of an operation by a service.

    Attributes:
        code: error code of the service, such as DependencyViolation.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class IncompleteError(ProviderError):
    """Error for a resource that exists but is incomplete: the engine keeps it, and the next update continues.

    Attributes:
        identity: id of the resource.
        reasons: reasons why it is incomplete.
    """

    def __init__(self, identity: str, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.identity = identity
        self.reasons = reasons
