"""The base class of all provider errors; each provider derives its own tree from it."""


class ProviderError(Exception):
    """Failure of an operation. The text names the failure, its place and the fix."""
