"""The phases of bringing a stack up and taking it down, in order.

Every phase starts from the existing state, so the next command completes an interrupted one.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudtwin.facade import remove_folder

from everstep.catalog.plurals import amount
from everstep.cli.console import say, warn
from everstep.cli.engine import (
    cloud_twin,
    host_checks,
    image_check,
    partial_update,
    prerequisites,
    shared_platform,
    stand_ins,
)
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.driver import Deployment, Engine, read_deployment, state_file
from everstep.cli.engine.stack_locks import release_stale_locks
from everstep.cli.engine.target import Target
from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from cloudtwin.facade import MachineSpec


def check_machine(context: StackContext) -> None:
    """Check that this machine can run the stack, before anything is written.

    Raises:
        EverstepError: the stack runs on the twin, and the twin cannot run here.
    """
    if context.on_twin:
        checks = host_checks.run_checks(context.workspace.state)
        for warning in host_checks.raise_for_failures(checks):
            warn(f"{warning.name}: {warning.observed}. {warning.fix}")


def bring_up(context: StackContext, progress: Progress, policy_packs: Sequence[str] = ()) -> Engine:
    """Bring up the machines, if they are the twin's, and then the stack.

    Raises:
        EverstepError: a requirement of the stack is missing, the update failed, or nodes cannot pull an image.
        TwinError: the twin cannot be built or started.
    """
    if context.platform is not None:
        shared_platform.require_platform(context)
    elif context.target is Target.TWIN:
        bring_up_twin(context, progress)
    elif context.target is Target.TWIN_CLOUD:
        cloud_twin.prepare(context, progress)
    elif context.target is Target.OWN_CLUSTER:
        with progress.step("Connecting to the cluster") as step:
            step.note(context.connect().version())
    engine = context.engine(progress, policy_packs)
    engine.require_stack()
    _release_locks(engine)
    counts = engine.up(progress)
    say(f"   {counts.describe()}", style="bright_black")
    _check_images(context, progress)
    return engine


def _release_locks(engine: Engine) -> None:
    """Release Pulumi's locks of killed processes."""
    for lock in release_stale_locks(engine):
        say(f"   released Pulumi's lock of process {lock.pid}, which was killed")


def _check_images(context: StackContext, progress: Progress) -> None:
    """Check the images of pods that Pulumi does not wait for; warn without access to the cluster."""
    try:
        client = context.connect()
    except EverstepError as error:
        warn(f"the images of programs on nodes were not checked: {error.problem}")
        return
    image_check.check_images(client, context.workspace.stack, progress)


def bring_up_part(context: StackContext, part: str, progress: Progress) -> str:
    """Bring up the registry of a stack before everything else; return its address.

    Raises:
        EverstepError: the stack declares no registry, or the update fails.
    """
    if context.target is Target.TWIN_CLOUD:
        cloud_twin.start(context, progress)
    engine = context.engine(progress)
    engine.require_stack()
    _release_locks(engine)
    counts = partial_update.bring_up_part(engine, part, progress)
    say(f"   {counts.describe()}", style="bright_black")
    return str(engine.outputs().get(part, ""))


def bring_up_twin(context: StackContext, progress: Progress) -> None:
    """Build missing programs and images, and start the twin's machines."""
    available = prerequisites.build(progress)
    stand_ins.require_images(stand_ins.images_used(context.config), available)
    context.twin().up(machines(context.config.job.max_replicas), progress)


def machines(workers: int) -> "list[MachineSpec]":
    """Return the machines of the local cluster: one system machine, and one GPU machine for each worker."""
    gpus = (gpu_machine(f"gpu-{index}") for index in range(workers))
    return [system_machine("system-0"), *gpus]


def take_down(context: StackContext, progress: Progress) -> None:
    """Destroy the stack, then the twin under it; afterwards nothing of either is left.

    Raises:
        EverstepError: a resource is protected, or jobs of other stacks use the platform; nothing was changed then.
            Outside the twin, a resource that could not be destroyed is an error as well; on the twin it is only a
            warning, because the twin's machines are removed anyway. On a cloud of the twin, it is an error if the
            destroyed stack left resources.
    """
    if context.target is Target.CLOUD:
        _take_down_in_cloud(context, progress)
        return
    # Decided by the state, because the stack file may be unusable.
    if shared_platform.referenced_stacks(read_deployment(context.workspace)):
        _take_down_job(context, progress)
        return
    if context.platform is not None:
        return  # the job was never brought up, and its platform belongs to another stack
    shared_platform.refuse_while_shared(context, shared_platform.local_deployments(context))
    remaining: list[str] = []
    if state_file(context.workspace).exists():
        destroyed = _destroy(context, progress)
        if destroyed and context.target is Target.TWIN_CLOUD:
            remaining = cloud_twin.remaining_resources(context)
    if context.on_twin:
        context.twin().down(progress)  # removes the folder; the next `up` may already use a new one
    else:
        _remove_home(context)
    if remaining:
        raise EverstepError(
            "the stack is destroyed, but in a real cloud these resources would remain and cost money:",
            "\n".join(
                [*remaining, "The twin removed them. This is a bug in Everstep; please report it."]
            ),
        )


def _take_down_in_cloud(context: StackContext, progress: Progress) -> None:
    """Destroy a stack in a real cloud, whose state is in the user's backend.

    Raises:
        EverstepError: the backend has no resources of the stack, which may be up from another backend; or a resource is
            protected, or jobs of other stacks use the platform; nothing was changed then. Or a resource could not be
            destroyed.
    """
    engine = context.engine(progress)
    deployment = engine.require_stack()
    if not deployment.get("resources"):
        raise _without_resources(engine)
    is_job = bool(shared_platform.referenced_stacks(deployment))
    if not is_job:
        shared_platform.refuse_while_shared(context, _other_deployments(engine))
        _refuse_protected(engine)
    say(f"   {engine.destroy(progress).describe()}", style="bright_black")
    if not is_job:  # the folder of a job is the platform's
        _remove_home(context)


def _remove_home(context: StackContext) -> None:
    """Remove the folder of a destroyed stack's state if that is possible."""
    with suppress(OSError):
        remove_folder(context.workspace.home)


def _other_deployments(engine: Engine) -> dict[str, Deployment]:
    """Return the states of the project's other stacks in the user's backend, by name."""
    states = {name: engine.deployment(name) for name in engine.other_stacks()}
    return {name.rpartition("/")[2]: state for name, state in states.items() if state is not None}


def _without_resources(engine: Engine) -> EverstepError:
    """Return the error of a stack to destroy that has no resources in its backend."""
    stack = engine.workspace.stack
    return EverstepError(
        f"stack {stack} has no resources in the backend {engine.backend()}; nothing was destroyed",
        "If it is up with another backend, log in there first: `pulumi login URL`. "
        f"`everstep doctor --stack {stack}` names the resources that exist in the account.",
    )


def _take_down_job(context: StackContext, progress: Progress) -> None:
    """Destroy the job of a stack, and keep the platform of the other stack that it runs on."""
    engine = context.engine(progress)
    release_stale_locks(engine)
    say(f"   {engine.destroy(progress).describe()}", style="bright_black")
    engine.remove_stack()


def _destroy(context: StackContext, progress: Progress) -> bool:
    """Destroy the stack; return True if everything was destroyed."""
    engine = context.engine(progress)
    release_stale_locks(engine)
    _refuse_protected(engine)
    try:
        if context.on_twin:
            context.connect().version()
        counts = engine.destroy(progress)
        say(f"   {counts.describe()}", style="bright_black")
    except EverstepError as error:
        if not context.on_twin:
            raise
        warn(f"{error.problem}; its machines are removed anyway, so its state is removed instead")
        # A state that Pulumi cannot read is removed with the folder of the twin.
        with suppress(EverstepError):
            engine.remove_stack()
        return False
    engine.remove_stack()
    return True


def _refuse_protected(engine: Engine) -> None:
    """Raise an error for a protected stack; Pulumi would first destroy other resources."""
    if not (names := engine.protected_resources()):
        return
    stack = engine.workspace.stack
    raise EverstepError(
        f"the stack {stack} is protected; nothing was destroyed: {', '.join(names)}",
        f"To destroy it anyway: set everstep:protect to false in {engine.workspace.stack_file} (and "
        f"environment in everstep:tags to a value other than prod, which requires protection), "
        "run `everstep up`, then `everstep down`.",
    )


def describe_run(folder: Path) -> str | None:
    """Return a summary of a run's folder for the user; None if it does not exist."""
    if not folder.is_dir():
        return None
    checkpoints = len(list(folder.glob("checkpoints/step-*")))
    return (
        f"{amount(checkpoints, 'checkpoint')} and the journal, {_bytes_in(folder) / 2**20:.0f} MiB"
    )


def _bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder, from which a running worker may remove files and folders."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total
