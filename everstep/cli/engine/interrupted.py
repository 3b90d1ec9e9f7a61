"""Resumption of an update that was killed while it created Kubernetes objects.

The engine records in the state which resources it is creating. After a kill such an object may
exist without being in the state, and Pulumi's kubernetes provider refuses to create it again.
"""

from collections.abc import Mapping
from typing import Any

CREATING = "creating"
KUBERNETES = "kubernetes:"
TAKEOVER = {
    "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true",
    "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",  # each attempt has its own field manager
}
"""The provider's options that make it update an object instead of creating it."""


def takeover_variables(deployment: Mapping[str, Any] | None) -> dict[str, str]:
    """Return variables with which an update takes over objects that a killed update was creating.

    Args:
        deployment: the stack's state as `pulumi stack export` prints it; None without state.

    Returns:
        The variables; none if the state records no such object, so that any other existing object is refused.
    """
    interrupted = any(
        operation.get("type") == CREATING
        and operation.get("resource", {}).get("type", "").startswith(KUBERNETES)
        for operation in (deployment or {}).get("pending_operations") or ()
    )
    return dict(TAKEOVER) if interrupted else {}
