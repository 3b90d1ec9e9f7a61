"""The context of a command: a stack, its configuration and target, and access to its cluster.

The twin and the Kubernetes package are imported on use, so that `everstep --help` and commands that
only read start fast and work where the twin cannot.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudtwin.facade import TwinError

from everstep.cli.console import warn
from everstep.cli.engine import plugins, stack_folder, stand_ins
from everstep.cli.engine.driver import Engine, open_engine, open_user_engine
from everstep.cli.engine.stack_file import check_deadline, default_config, read_config
from everstep.cli.engine.target import (
    PROVIDERS,
    Target,
    clouds_in_state,
    exists_on_twin_cloud,
    target_of,
    targets_with_state,
    workspace_on,
)
from everstep.cli.engine.workspace import Workspace, open_workspace
from everstep.cli.kubernetes_client import KubernetesClient
from everstep.cli.report.fold import RECENT_STEPS
from everstep.cli.report.moves import moves_file
from everstep.cli.report.readers import FolderReader, PodReader, RunReader
from everstep.errors import EverstepError
from everstep.files import expand_user
from everstep.progress import Progress
from everstep.spelling import unknown_name

if TYPE_CHECKING:
    from cloudtwin.facade import Twin

    from components.config import AksConfig, EksConfig, StackConfig


@dataclass(frozen=True)
class StackContext:
    """A stack, its location and its target.

    Attributes:
        workspace: its files and its state.
        config: its checked configuration; the defaults if `config_error` is set.
        target: the machines or the cloud that it runs on.
        config_error: error of a stack file that cannot be used. It is set only for a stack to destroy.
        platform: the stack on whose platform the job runs; None if the stack has its own platform.
    """

    workspace: Workspace
    config: "StackConfig"
    target: Target
    config_error: EverstepError | TwinError | None = None
    platform: "StackContext | None" = None

    @property
    def job(self) -> str:
        """Name of the training job."""
        return self.config.job.name

    @property
    def platform_stack(self) -> str:
        """Name of the stack that declares the platform: another one if only the job is this stack's."""
        return (self.platform or self).workspace.stack

    @property
    def on_twin(self) -> bool:
        """True if everything that the stack creates is on this machine."""
        return self.target.is_on_twin

    @property
    def clouds(self) -> tuple[str, ...]:
        """Providers of the clouds that the stack declares resources in, or has in its state."""
        declared = PROVIDERS.get(self.config.cluster.kind)
        return tuple(sorted({*clouds_in_state(self.workspace), *([declared] if declared else [])}))

    @property
    def run_folder(self) -> Path:
        """Folder of the run's files, for a stack whose volume is on this machine."""
        volume = self._cloud_volume if self.target is Target.TWIN_CLOUD else None
        return (volume or self.twin().shared) / "runs" / self.job

    @property
    def moves(self) -> Path:
        """File with the moves of the job that commands have observed."""
        return moves_file(self.workspace.home, self.job)

    @property
    def _cloud_volume(self) -> Path | None:
        from cloudtwin.facade import shared_volume

        return shared_volume(self.workspace.state)

    def twin(self) -> "Twin":
        """Return the twin.

        Raises:
            EverstepError: the stack does not run on the twin.
        """
        if not self.on_twin:
            raise EverstepError(
                f"stack {self.workspace.stack} runs on {self.target}, not on the twin",
                "Drain and remove machines of your own with kubectl or your cloud's tools.",
            )
        from cloudtwin.facade import Twin

        from everstep.cli.images import OPTIONS

        return Twin.open(self.workspace.twin, OPTIONS)

    def kubeconfig(self) -> Path | None:
        """Return the kubeconfig to use; None means $KUBECONFIG."""
        if self.on_twin:
            return self._twin_kubeconfig
        cluster = self.config.cluster
        path = cluster.kubeconfig if cluster.kind == "existing" else None
        return expand_user(path) if path else None

    @property
    def _twin_kubeconfig(self) -> Path:
        from cloudtwin.facade import kubeconfig_path

        return kubeconfig_path(self.workspace.state)

    def connect(self) -> KubernetesClient:
        """Return a client of the cluster.

        Raises:
            EverstepError: there is no usable kubeconfig.
        """
        path = self.kubeconfig()
        if self.on_twin and path is not None and not path.exists():
            raise no_local_cluster()
        cluster = self.config.cluster
        if cluster.kind != "existing" and path is None and not os.environ.get("KUBECONFIG"):
            raise EverstepError(
                f"stack {self.workspace.stack} runs in a real cloud, but $KUBECONFIG is not set",
                f"Get a kubeconfig with {connect_command(cluster)}, then set KUBECONFIG to its path.\n"
                "If the stack runs on the twin's cloud: add --twin.",
            )
        context = cluster.context if cluster.kind == "existing" else None
        return KubernetesClient.connect(path, context)

    def run_reader(self, recent_steps: int = RECENT_STEPS) -> RunReader:
        """Return a reader of the run's files, which merges steps older than the newest `recent_steps` into blocks."""
        if self.on_twin:
            return FolderReader(self.run_folder, self.twin().events, recent_steps, self.moves)
        events = self.workspace.events
        return PodReader(self.connect(), self.job, events, recent_steps, self.moves)

    def engine(self, progress: Progress, policy_packs: Sequence[str] = ()) -> Engine:
        """Return Pulumi, ready to work on the stack; build it first if needed.

        Args:
            progress: receiver of the build's progress.
            policy_packs: folders of policy packs to check the stack with.

        Raises:
            EverstepError: a policy pack does not exist, another project has the stack, or this machine lacks a
                program or package for the stack's cloud.
            TwinError: Pulumi cannot be built.
        """
        packs = [policy_pack_folder(pack) for pack in policy_packs]
        self.require_own_project()
        stack_folder.claim(self.workspace)
        if self.target is Target.CLOUD:
            program, variables = plugins.real_clouds(self.clouds)
            return open_user_engine(self.workspace, program, variables, packs)
        from cloudtwin.facade import engine_plugins, ensure_tools

        program = ensure_tools(["pulumi"], progress)["pulumi"]
        home = self.workspace.engine / "home"
        home.mkdir(parents=True, exist_ok=True)
        variables = dict(engine_plugins(home, program))
        kubeconfig = self.kubeconfig()
        if self.target is Target.TWIN_CLOUD:
            variables |= plugins.twin_clouds(self.workspace, self._twin_kubeconfig, self.clouds)
            kubeconfig = None  # the stack gets it from its own cluster, as in the cloud
        return open_engine(self.workspace, program, kubeconfig, variables, packs)

    def require_own_project(self) -> None:
        """Check that the stack may be changed from this project.

        Raises:
            EverstepError: another project has the stack.
        """
        stack_folder.require_own_project(self.workspace)

    def check_node(self, name: str) -> str:
        """Return the name of a machine to change, if it exists.

        Raises:
            EverstepError: it does not exist; the error names similar machines. Or another project has the stack.
        """
        self.require_own_project()
        names = machine_names(self.twin())
        if not names:
            raise no_local_cluster()
        if name not in names:
            raise unknown_name("node", name, names)
        return name


def no_local_cluster() -> EverstepError:
    """Return the error of a command that needs a running twin."""
    return EverstepError("there is no local cluster", "`everstep up` starts one.")


def policy_pack_folder(path: str) -> Path:
    """Return the absolute folder of a policy pack.

    Raises:
        EverstepError: it is not the folder of a policy pack.
    """
    folder = Path(path).absolute()
    if not (folder / "PulumiPolicy.yaml").is_file():
        raise EverstepError(
            f"{path} is not a policy pack: {folder / 'PulumiPolicy.yaml'} does not exist",
            "Pass the folder of a policy pack, such as `policy` in a clone of Everstep.",
        )
    return folder


def open_stack(stack: str, *, twin: bool = False) -> StackContext:
    """Return the context of a stack with its checked configuration.

    Raises:
        EverstepError: the stack does not exist, its file is invalid, or it cannot run on the twin.
    """
    workspace = open_workspace(stack)
    config = read_config(workspace)
    if config.platform_stack is None:
        return _open_platform(workspace, config, twin=twin)
    platform_workspace = open_workspace(config.platform_stack.name)
    platform_config = read_config(platform_workspace)
    if platform_config.platform_stack is not None:
        raise _not_a_platform(stack, platform_workspace.stack, platform_config.platform_stack.name)
    platform = _open_platform(platform_workspace, platform_config, twin=twin)
    return _open_job_stack(stack, config, platform)


def _not_a_platform(stack: str, named_stack: str, platform: str) -> EverstepError:
    """Return the error for a job stack whose `platformStack` names itself or another job stack, on `platform`."""
    is_cyclic = platform in (stack, named_stack)
    return EverstepError(
        f"stack {stack}: platformStack.name is {named_stack}, which declares only a job",
        "Specify a stack that declares a platform."
        if is_cyclic
        else f"Specify the stack of its platform: {platform}.",
    )


def _open_platform(workspace: Workspace, config: "StackConfig", *, twin: bool) -> StackContext:
    """Return the context of a stack that declares a platform."""
    target = target_of(config, twin=twin)
    context = StackContext(workspace_on(target, workspace), config, target)
    return _override_for_twin(context) if target is Target.TWIN_CLOUD else context


def open_stack_to_deploy(stack: str, *, twin: bool = False) -> StackContext:
    """Return the context of a stack to deploy or preview; warn about pools whose price is above their ceiling.

    Raises:
        EverstepError: it cannot be opened, or the deadline of its job has passed.
    """
    from components import cost

    context = open_stack(stack, twin=twin)
    check_deadline(context.workspace, context.config)
    for note in cost.ceiling_notes(cost.pool_prices(context.config)):
        warn(f"{note}.")
    return context


def _open_job_stack(stack: str, config: "StackConfig", platform: StackContext) -> StackContext:
    """Return the context of a stack whose job runs on the platform of another stack.

    Its state is in the platform's backend, so that its program can read the platform's outputs. Its
    configuration has the sections of the platform, which its own file must not set.
    """
    from components.config.platform_stack_rules import PLATFORM_SECTIONS

    workspace = replace(platform.workspace, stack=stack, overrides=())
    shared = {section: getattr(platform.config, section) for section in PLATFORM_SECTIONS}
    config = config.model_copy(update=shared)
    return StackContext(workspace, config, platform.target, platform=platform)


def _override_for_twin(context: StackContext) -> StackContext:
    """Return the context with replacements for the sections that the twin cannot run."""
    sections = stand_ins.config_overrides(context.config, stand_ins.user_images())
    if not sections:
        return context
    overrides = tuple((name, json.dumps(section)) for name, section in sections.items())
    workspace = replace(context.workspace, overrides=overrides)
    return replace(context, workspace=workspace, config=read_config(workspace))


def open_running_stack(stack: str, *, twin: bool = False) -> StackContext:
    """Return the context of a stack to inspect; a stack that is up on the twin's cloud needs no `twin`."""
    context = open_stack(stack, twin=twin)
    platform = open_workspace(context.platform_stack)
    if context.target is Target.CLOUD and exists_on_twin_cloud(platform):
        return open_stack(stack, twin=True)
    return context


def open_stack_to_destroy(stack: str, *, twin: bool = False) -> StackContext:
    """Return the context of a stack to destroy; if it has state, its stack file may be invalid.

    Raises:
        EverstepError: its stack file cannot be used and it has no state; with `twin`, no state on the twin.
        TwinError: the archives of the twin's images cannot be read and it has no such state.
    """
    try:
        return open_stack(stack, twin=twin)
    except (EverstepError, TwinError) as error:
        workspace = open_workspace(stack)
        for target, workspace_with_state in targets_with_state(workspace):
            if not twin or target.is_on_twin:
                return StackContext(workspace_with_state, default_config(workspace), target, error)
        raise


def connect_command(cluster: "EksConfig | AksConfig") -> str:
    """Return the command that gets a kubeconfig of the stack's cluster from its cloud."""
    if cluster.kind == "eks":
        return f"`aws eks update-kubeconfig --name {cluster.name} --region {cluster.region}`"
    return "`az aks get-credentials` with the stack's outputs `resourceGroup` and `clusterName`"


def machine_names(twin: "Twin") -> list[str]:
    """Return the names of the twin's machines, including vanished ones."""
    return [machine.spec.name for machine in twin.status().machines]
