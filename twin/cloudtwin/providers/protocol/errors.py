"""The root of the errors of provider operations. Each provider derives its own tree from it."""


class ProviderError(Exception):
    """Failure of an operation. The text names the failure, its place and the fix."""
