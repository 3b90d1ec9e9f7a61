"""How a command reaches what it works on: the twin, the engine, the cluster, the run's files.

The twin's modules and the Kubernetes package are imported here, late, so that `everstep --help`
and the reading commands start at once and work where the twin cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli.cluster import Cluster
from everstep.cli.engine import Engine, open_engine
from everstep.cli.names import unknown
from everstep.cli.sources import Folder, Source, Worker
from everstep.cli.workspace import Workspace, on_own_cluster, open_workspace, read_configuration
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from components.config import StackConfig
    from twin.nodes import Twin


@dataclass(frozen=True)
class Place:
    """A workspace with its checked configuration."""

    workspace: Workspace
    config: "StackConfig"

    @property
    def job(self) -> str:
        """The name of the training job."""
        return self.config.job.name

    @property
    def on_twin(self) -> bool:
        """Whether the stack runs on the twin: it names no cluster of the user's own."""
        cluster = self.config.cluster
        return cluster.kind != "existing" or (cluster.kubeconfig or cluster.context) is None

    @property
    def run_folder(self) -> Path:
        """The run's files, where the volume is a folder of this machine."""
        return self.twin().shared / "runs" / self.job

    def twin(self) -> "Twin":
        """The twin.

        Raises:
            EverstepError: the stack runs on a cluster of the user's own.
        """
        if not self.on_twin:
            raise EverstepError(
                f"stack {self.workspace.stack} runs on a cluster of your own, not on the twin",
                "Machines of your own are drained and removed with your cloud's tools or kubectl.",
            )
        from twin.nodes import Twin

        return Twin.open(self.workspace.twin)

    def kubeconfig(self) -> Path | None:
        """The kubeconfig to use; None stands for $KUBECONFIG."""
        if self.on_twin:
            return self.twin().kubeconfig
        cluster = self.config.cluster
        named = cluster.kubeconfig if cluster.kind == "existing" else None
        return Path(named).expanduser() if named else None

    def connect(self) -> Cluster:
        """A connection to the cluster.

        Raises:
            EverstepError: there is no usable kubeconfig.
        """
        path = self.kubeconfig()
        if self.on_twin and path is not None and not path.exists():
            raise no_local_cluster()
        cluster = self.config.cluster
        return Cluster.connect(path, cluster.context if cluster.kind == "existing" else None)

    def source(self) -> Source:
        """Where the run's files are read from."""
        events = self.workspace.events
        if self.on_twin:
            twin = self.twin()
            return Folder(twin.shared / "runs" / self.job, twin.events)
        return Worker(self.connect(), self.job, events)

    def engine(self, progress: Progress) -> Engine:
        """Pulumi, ready to work on the stack; built first where it is missing."""
        from twin.pulumi import install_plugins
        from twin.toolchain import ensure_tools

        program = ensure_tools(["pulumi"], progress)["pulumi"]
        home = self.workspace.engine / "home"
        home.mkdir(parents=True, exist_ok=True)
        plugins = install_plugins(home, program)
        return open_engine(self.workspace, program, self.kubeconfig(), plugins)

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


def place(stack: str) -> Place:
    """Open a stack, its configuration checked."""
    workspace = open_workspace(stack)
    here = Place(workspace, read_configuration(workspace))
    return here if here.on_twin else replace(here, workspace=on_own_cluster(workspace))


def machine_names(twin: "Twin") -> list[str]:
    """The names of the twin's machines, gone ones included."""
    return [machine.spec.name for machine in twin.status().machines]
