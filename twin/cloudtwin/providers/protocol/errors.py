"""The root of the errors of provider operations. Each provider derives its own tree from it."""


class ProviderError(Exception):
    """An operation failed. The text names the failure, its place and the fix."""
