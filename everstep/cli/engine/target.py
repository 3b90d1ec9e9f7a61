"""The target that a stack runs on, and the location of its state for that target.

There are four targets: the twin's own machines, a cluster of the user's own, a cloud of the twin, and a real
cloud. The stack file decides between the first two or names the cloud. `--twin` decides between the cloud and
its twin for one command at a time, so that no command reaches or avoids an account by accident.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from everstep.cli.engine.driver import PASSPHRASE_VARIABLES, read_deployment, state_file
from everstep.cli.engine.workspace import DEFAULT_STACK, Workspace, state_outside_twins
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig

PROVIDERS = {"eks": "aws", "aks": "azure-native"}
"""Pulumi's name of the cloud provider, by kind of cluster."""


class Target(StrEnum):
    """The machines or the cloud that a stack runs on."""

    TWIN = "the twin's machines"
    OWN_CLUSTER = "a cluster of your own"
    TWIN_CLOUD = "a cloud of the twin"
    CLOUD = "a real cloud"

    @property
    def is_on_twin(self) -> bool:
        """True if everything is on this machine and is removed with the twin."""
        return self in (Target.TWIN, Target.TWIN_CLOUD)

    @property
    def unbilled_reason(self) -> str:
        """The reason why a run on this target costs nothing; empty for a real cloud."""
        return _UNBILLED_REASONS.get(self, "")


_UNBILLED_REASONS = {
    Target.TWIN: "the twin's machines are Linux namespaces on one computer",
    Target.TWIN_CLOUD: "a twin on one computer stood in for the cloud",
    Target.OWN_CLUSTER: "the stack ran on a cluster of your own and bought no machine",
}


def target_of(config: "StackConfig", *, twin: bool) -> Target:
    """Return the target that a stack runs on.

    Args:
        config: the stack's configuration.
        twin: True for `--twin`.

    Raises:
        EverstepError: `--twin` is set, but the stack names a cluster of the user's own.
    """
    cluster = config.cluster
    if cluster.kind != "existing":
        return Target.TWIN_CLOUD if twin else Target.CLOUD
    own_cluster = cluster.kubeconfig or cluster.context
    if own_cluster is None:
        return Target.TWIN
    if twin:
        raise EverstepError(
            f"the stack names a cluster of your own ({own_cluster}), so it cannot run on the twin",
            "Omit --twin, or remove kubeconfig and context from everstep:cluster.",
        )
    return Target.OWN_CLUSTER


def workspace_on(target: Target, workspace: Workspace) -> Workspace:
    """Return the workspace of the same stack on a target.

    A stack on a cloud of the twin has its own twin, named like the stack unless EVERSTEP_TWIN names
    another: two clusters cannot share one control plane. State of a stack outside the twin is next to, not in,
    the folder of twins, so that it is not removed with a twin.
    """
    if target is Target.TWIN:
        return workspace
    if target is not Target.TWIN_CLOUD:
        return replace(workspace, separate_state=state_outside_twins(workspace))
    from cloudtwin.facade import state_directory, twin_name

    name = workspace.twin if workspace.twin_is_chosen else twin_name(workspace.stack)
    return replace(workspace, twin=name, state=state_directory(name))


def preview_workspace(workspace: Workspace) -> Workspace:
    """Return the workspace to preview a stack that does not exist on a cloud of the twin.

    The preview must leave nothing in the folder of twins. Its empty state is in the cache and serves the next
    preview too: the engine needs half a second to create it, mostly to derive the key of its passphrase. A
    passphrase that the user sets may change; then the state is in the twin's folder and the caller removes it.
    """
    if workspace.state.exists() or any(name in os.environ for name in PASSPHRASE_VARIABLES):
        return workspace
    from cloudtwin.facade import cache_directory

    project = hashlib.sha256(str(workspace.project).encode()).hexdigest()[:8]
    folder = cache_directory().absolute() / "previews" / f"{workspace.stack}-{project}"
    return replace(workspace, separate_state=folder)


def exists_on_twin_cloud(workspace: Workspace) -> bool:
    """Return True if the stack was brought up on a cloud of the twin and still has state there."""
    return state_file(workspace_on(Target.TWIN_CLOUD, workspace)).exists()


def targets_with_state(workspace: Workspace) -> Iterator[tuple[Target, Workspace]]:
    """Yield every target on which the stack has state, regardless of its stack file."""
    outside_workspace = workspace_on(Target.OWN_CLUSTER, workspace)
    if state_file(outside_workspace).exists():
        yield (
            Target.CLOUD if clouds_in_state(outside_workspace) else Target.OWN_CLUSTER,
            outside_workspace,
        )
    cloud_workspace = workspace_on(Target.TWIN_CLOUD, workspace)
    if clouds_in_state(cloud_workspace):
        yield Target.TWIN_CLOUD, cloud_workspace
    is_local = workspace.stack == DEFAULT_STACK and workspace.state.is_dir()
    if is_local or (state_file(workspace).exists() and not clouds_in_state(workspace)):
        yield Target.TWIN, workspace


def clouds_in_state(workspace: Workspace) -> list[str]:
    """Return the cloud providers that the state contains."""
    resources = (read_deployment(workspace) or {}).get("resources") or ()
    types = {str(resource.get("type")) for resource in resources}
    return [cloud for cloud in PROVIDERS.values() if f"pulumi:providers:{cloud}" in types]
