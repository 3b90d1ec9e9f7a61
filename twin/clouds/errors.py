"""What a cloud says when it says no.

Both are the engine's ProviderError, so that one shell turns them into answers.
"""

from twin.pulumi.provider.errors import ProviderError


class CloudError(ProviderError):
    """A service refused.

    Attributes:
        code: the service's own word for it, such as DependencyViolation.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class HalfDoneError(ProviderError):
    """A resource exists but is not as wanted: the engine keeps it, the next update goes on.

    Attributes:
        identity: the resource's id.
        reasons: why it is not as wanted.
    """

    def __init__(self, identity: str, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.identity = identity
        self.reasons = reasons
