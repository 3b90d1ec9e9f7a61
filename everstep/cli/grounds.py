"""What a stack stands on, and where its state lies for that.

Four grounds: the twin's own machines, a cluster of the user's own, a cloud of the twin, and a real
cloud. The stack file says which of the first two or which cloud; `--twin` chooses between the cloud
and its twin, for one command at a time, so that nobody reaches an account who did not mean to stay
away from it, or the other way round.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from everstep.cli.engine import PASSPHRASE, state_file
from everstep.cli.workspace import DEFAULT_STACK, Workspace, aside
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig

PLUGINS = {"eks": "aws", "aks": "azure-native"}
"""The cloud's provider, as Pulumi calls it, by the kind of cluster that needs it."""


class Ground(StrEnum):
    """What a stack stands on."""

    TWIN = "the twin's machines"
    OWN_CLUSTER = "a cluster of your own"
    TWIN_CLOUD = "a cloud of the twin"
    CLOUD = "a real cloud"

    @property
    def is_twins(self) -> bool:
        """Whether it is made on this machine, and goes with the twin."""
        return self in (Ground.TWIN, Ground.TWIN_CLOUD)


def ground_of(config: "StackConfig", *, twin: bool) -> Ground:
    """Say what a stack stands on.

    Args:
        config: the stack's configuration.
        twin: whether the twin was asked for.

    Raises:
        EverstepError: the twin was asked for, but the stack names a cluster of the user's own.
    """
    cluster = config.cluster
    if cluster.kind != "existing":
        return Ground.TWIN_CLOUD if twin else Ground.CLOUD
    named = cluster.kubeconfig or cluster.context
    if named is None:
        return Ground.TWIN
    if twin:
        raise EverstepError(
            f"the stack names a cluster of your own ({named}), so it cannot run on the twin",
            "Leave --twin out, or take kubeconfig and context out of everstep:cluster.",
        )
    return Ground.OWN_CLUSTER


def on(ground: Ground, workspace: Workspace) -> Workspace:
    """The workspace of the same stack on a ground.

    A stack on a cloud of the twin has a twin of its own, named like the stack unless EVERSTEP_TWIN
    says otherwise: two clusters cannot share one control plane. State of what the twin does not
    make lies beside, not in, the folder of twins: it must not be forgotten with one of them.
    """
    if ground is Ground.TWIN:
        return workspace
    if ground is not Ground.TWIN_CLOUD:
        return replace(workspace, keep=aside(workspace))
    from twin.paths import state_directory, twin_name

    name = workspace.twin if workspace.twin_is_chosen else twin_name(workspace.stack)
    return replace(workspace, twin=name, state=state_directory(name))


def only_previewed(workspace: Workspace) -> Workspace:
    """The workspace of a stack that is to be previewed, on a cloud of the twin.

    Of a stack that is not there, nothing may be left where twins are. Its empty state lies in the
    cache and serves the next preview too: creating it costs the engine half a second, most of it
    for stretching the passphrase, which is the state's own. Under a passphrase of the user's, who
    may change it, it lies with the twin, and has to be removed.
    """
    if workspace.state.exists() or any(name in os.environ for name in PASSPHRASE):
        return workspace
    from twin.paths import cache_directory

    clone = hashlib.sha256(str(workspace.project).encode()).hexdigest()[:8]
    folder = cache_directory().absolute() / "previews" / f"{workspace.stack}-{clone}"
    return replace(workspace, keep=folder)


def is_on_twins_cloud(workspace: Workspace) -> bool:
    """Whether the stack was brought up on a cloud of the twin and is remembered there."""
    return state_file(on(Ground.TWIN_CLOUD, workspace)).exists()


def remembered(workspace: Workspace) -> Iterator[tuple[Ground, Workspace]]:
    """Where a stack's state is found, whatever its stack file says: for taking it down."""
    own = on(Ground.OWN_CLUSTER, workspace)
    if state_file(own).exists():
        yield Ground.CLOUD if clouds_in_state(own) else Ground.OWN_CLUSTER, own
    cloud = on(Ground.TWIN_CLOUD, workspace)
    if clouds_in_state(cloud):
        yield Ground.TWIN_CLOUD, cloud
    local = workspace.stack == DEFAULT_STACK and workspace.state.is_dir()
    if local or (state_file(workspace).exists() and not clouds_in_state(workspace)):
        yield Ground.TWIN, workspace


def clouds_in_state(workspace: Workspace) -> list[str]:
    """The clouds of which the state lists a provider."""
    try:
        state = json.loads(state_file(workspace).read_text())
    except (OSError, ValueError):
        return []
    resources = ((state.get("checkpoint") or {}).get("latest") or {}).get("resources") or ()
    types = {str(resource.get("type")) for resource in resources}
    return [cloud for cloud in PLUGINS.values() if f"pulumi:providers:{cloud}" in types]
