"""Values that are no secrets, whatever the name of their variable: policies and configuration accept the same."""


def is_harmless(value: str) -> bool:
    """Return True if a value is empty, a switch such as HF_HUB_DISABLE_IMPLICIT_TOKEN's, or another variable's value.

    Kubernetes replaces `$(NAME)` in a container by the value of its variable NAME.
    """
    return not value or value.lower() in {"true", "false"} or value.startswith("$(")
