"""How a command reaches what it works on: the twin, the engine, the cluster, the run's files.

The twin's modules and the Kubernetes package are imported here, late, so that `everstep --help`
and the reading commands start at once and work where the twin cannot.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli import clouds, grounds, stand_ins
from everstep.cli.cluster import Cluster
from everstep.cli.engine import Engine, open_engine
from everstep.cli.grounds import PLUGINS, Ground
from everstep.cli.names import unknown
from everstep.cli.sources import Folder, Source, Worker
from everstep.cli.workspace import (
    Workspace,
    default_configuration,
    open_workspace,
    read_configuration,
)
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from components.config import AksConfig, EksConfig, StackConfig
    from twin.nodes import Twin


@dataclass(frozen=True)
class Place:
    """A stack, where it is and what it stands on.

    Attributes:
        workspace: its files and its state.
        config: its checked configuration; the defaults where `fault` says that it has none.
        ground: what it stands on.
        fault: why its stack file cannot be used. Only a place that is to be left has one.
    """

    workspace: Workspace
    config: "StackConfig"
    ground: Ground
    fault: EverstepError | None = None

    @property
    def job(self) -> str:
        """The name of the training job."""
        return self.config.job.name

    @property
    def on_twin(self) -> bool:
        """Whether all that the stack makes is made on this machine."""
        return self.ground.is_twins

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds that the stack declares resources in, or has in its state."""
        named = PLUGINS.get(self.config.cluster.kind)
        found = {*grounds.clouds_in_state(self.workspace), *([named] if named else [])}
        return tuple(sorted(found))

    @property
    def run_folder(self) -> Path:
        """The run's files, where the volume is a folder of this machine."""
        volume = clouds.volume(self.twin()) if self.ground is Ground.TWIN_CLOUD else None
        return (volume or self.twin().shared) / "runs" / self.job

    def twin(self) -> "Twin":
        """The twin.

        Raises:
            EverstepError: the stack does not run on the twin.
        """
        if not self.on_twin:
            raise EverstepError(
                f"stack {self.workspace.stack} runs on {self.ground}, not on the twin",
                "Machines of your own are drained and removed with your cloud's tools or kubectl.",
            )
        from twin.nodes import Twin

        return Twin.open(self.workspace.twin)

    def kubeconfig(self) -> Path | None:
        """The kubeconfig to use; None stands for $KUBECONFIG."""
        if self.on_twin:
            return self._twins_kubeconfig
        cluster = self.config.cluster
        named = cluster.kubeconfig if cluster.kind == "existing" else None
        return Path(named).expanduser() if named else None

    @property
    def _twins_kubeconfig(self) -> Path:
        from twin.nodes.layout import Layout  # all of the twin would take a tenth of a second

        return Layout(self.workspace.state).kubeconfig

    def connect(self) -> Cluster:
        """A connection to the cluster.

        Raises:
            EverstepError: there is no usable kubeconfig.
        """
        path = self.kubeconfig()
        if self.on_twin and path is not None and not path.exists():
            raise no_local_cluster()
        cluster = self.config.cluster
        if cluster.kind != "existing" and path is None and not os.environ.get("KUBECONFIG"):
            raise EverstepError(
                f"stack {self.workspace.stack} runs in a real cloud, and $KUBECONFIG names no cluster",
                f"Get a kubeconfig by {connect_command(cluster)}, then name it in KUBECONFIG.\n"
                "If the stack stands on the twin's cloud: add --twin.",
            )
        return Cluster.connect(path, cluster.context if cluster.kind == "existing" else None)

    def source(self) -> Source:
        """Where the run's files are read from."""
        if self.on_twin:
            return Folder(self.run_folder, self.twin().events)
        return Worker(self.connect(), self.job, self.workspace.events)

    def engine(self, progress: Progress) -> Engine:
        """Pulumi, ready to work on the stack; built first where it is missing.

        Raises:
            EverstepError: it cannot be built, or the stack's cloud lacks something here.
        """
        if self.ground is Ground.CLOUD:
            program, added = clouds.real(self.clouds)
            return open_engine(self.workspace, program, None, added)
        from twin.pulumi import install_plugins
        from twin.toolchain import ensure_tools

        program = ensure_tools(["pulumi"], progress)["pulumi"]
        home = self.workspace.engine / "home"
        home.mkdir(parents=True, exist_ok=True)
        added = dict(install_plugins(home, program))
        if self.ground is Ground.TWIN_CLOUD:
            added |= clouds.of_twin(self.workspace, self._twins_kubeconfig, self.clouds)
            return open_engine(self.workspace, program, None, added)
        return open_engine(self.workspace, program, self.kubeconfig(), added)

    def node(self, name: str, among: Sequence[str] | None = None) -> str:
        """Check that a machine of this name exists.

        Raises:
            EverstepError: it does not; with the nearest names.
        """
        known = machine_names(self.twin()) if among is None else among
        if not known:
            raise no_local_cluster()
        if name not in known:
            raise unknown("node", name, known)
        return name


def no_local_cluster() -> EverstepError:
    """The error of a command that needs the twin where none stands."""
    return EverstepError("there is no local cluster", "`everstep up` starts one.")


def place(stack: str, *, twin: bool = False) -> Place:
    """Open a stack, its configuration checked, on what a command was told to work on.

    Raises:
        EverstepError: there is no such stack, its file is faulty, or the twin cannot be its ground.
    """
    workspace = open_workspace(stack)
    config = read_configuration(workspace)
    ground = grounds.ground_of(config, twin=twin)
    here = Place(grounds.on(ground, workspace), config, ground)
    return _without_the_published(here) if ground is Ground.TWIN_CLOUD else here


def _without_the_published(here: Place) -> Place:
    """The same place with what the twin cannot run put aside for what it can."""
    sections = stand_ins.in_place_of(here.config, stand_ins.given())
    if not sections:
        return here
    instead = tuple((name, json.dumps(section)) for name, section in sections.items())
    workspace = replace(here.workspace, instead=instead)
    return replace(here, workspace=workspace, config=read_configuration(workspace))


def place_to_look(stack: str, *, twin: bool = False) -> Place:
    """Open a stack that is only looked at: one that stands on the twin's cloud is found there."""
    here = place(stack, twin=twin)
    if here.ground is Ground.CLOUD and grounds.is_on_twins_cloud(open_workspace(stack)):
        return place(stack, twin=True)
    return here


def place_to_leave(stack: str, *, twin: bool = False) -> Place:
    """Open a stack that is to be taken down: its state must be there, its stack file need not.

    Raises:
        EverstepError: its stack file cannot be used and no state of it is remembered.
    """
    try:
        return place(stack, twin=twin)
    except EverstepError as fault:
        workspace = open_workspace(stack)
        for ground, there in grounds.remembered(workspace):
            if not twin or ground.is_twins:
                return Place(there, default_configuration(workspace), ground, fault)
        raise


def connect_command(cluster: "EksConfig | AksConfig") -> str:
    """The command by which the cloud gives a kubeconfig of the stack's cluster."""
    if cluster.kind == "eks":
        return f"`aws eks update-kubeconfig --name {cluster.name} --region {cluster.region}`"
    return "`az aks get-credentials` with the stack's outputs `resourceGroup` and `clusterName`"


def machine_names(twin: "Twin") -> list[str]:
    """The names of the twin's machines, gone ones included."""
    return [machine.spec.name for machine in twin.status().machines]
