"""The root of all errors of an operation: each provider grows its own tree from it."""


class ProviderError(Exception):
    """An operation failed. The text says what, where and what to do."""
