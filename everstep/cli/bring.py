"""Bring a stack up and take it down: the order of the phases, and what each one says.

Every phase looks first at what is there, so that a run that was killed anywhere is mended by the
next.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli import machine, stand_ins, toolbox, twin_cloud
from everstep.cli.access import Place
from everstep.cli.console import say, warn
from everstep.cli.engine import Engine, release_dead_locks, state_file
from everstep.cli.engine_events import Tally
from everstep.cli.grounds import Ground
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from twin.nodes import MachineSpec


def check_machine(place: Place) -> None:
    """Make sure that this machine can be what the stack asks of it, before anything is written.

    Raises:
        EverstepError: the stack is the twin's, and no twin can stand here.
    """
    if place.on_twin:
        for doubtful in machine.require(machine.checks(place.workspace.state)):
            warn(f"{doubtful.what}: {doubtful.found}. {doubtful.remedy}")


def bring_up(place: Place, progress: Progress) -> Engine:
    """Make everything of the stack stand: machines if they are the twin's, then the stack itself."""
    if place.ground is Ground.TWIN:
        bring_up_twin(place, progress)
    elif place.ground is Ground.TWIN_CLOUD:
        twin_cloud.prepare(place, progress)
    elif place.ground is Ground.OWN_CLUSTER:
        with progress.step("Asking the cluster for its version") as step:
            step.note(place.connect().check())
    engine = place.engine(progress)
    for lock in release_dead_locks(engine):
        say(f"   Pulumi's lock of process {lock.pid}, which was killed, is released")
    tally = engine.up(progress)
    say(f"   {tally.sentence()}", style="bright_black")
    return engine


def bring_up_twin(place: Place, progress: Progress) -> None:
    """Build what is missing, start the twin's machines."""
    images = toolbox.build(progress)
    stand_ins.require(stand_ins.named(place.config), images.references)
    place.twin().up(machines(place.config.job.max_replicas), progress)


def machines(workers: int) -> "list[MachineSpec]":
    """The local cluster: one machine for what stays, one for each worker there may be."""
    from twin.nodes import MachineSpec, Role

    gpus = [MachineSpec(f"gpu-{index}", Role.GPU) for index in range(workers)]
    return [MachineSpec("system-0", Role.SYSTEM), *gpus]


def take_down(place: Place, progress: Progress) -> None:
    """Destroy the stack, then the twin under it; afterwards nothing of either is left.

    Raises:
        EverstepError: something is protected, so nothing was touched; or, on a cluster of the
            user's own or in a real cloud, something could not be destroyed. On the twin that is
            only a warning: the machines it ran on go anyway.
    """
    left: list[str] = []
    if state_file(place.workspace).exists() or place.ground is Ground.CLOUD:
        destroyed = _destroy(place, progress)
        if destroyed and place.ground is Ground.TWIN_CLOUD:
            left = twin_cloud.left_in_accounts(place)
    if place.on_twin:
        place.twin().down(progress)
    shutil.rmtree(place.workspace.home, ignore_errors=True)
    if left:
        raise EverstepError(
            "the stack is destroyed, but in a real cloud this would still be there and cost money:",
            "\n".join(
                [*left, "The twin has forgotten it. It is a fault of the program: report it."]
            ),
        )


def _destroy(place: Place, progress: Progress) -> bool:
    """Destroy the stack; whether all of it could be."""
    engine = place.engine(progress)
    release_dead_locks(engine)
    _refuse_protected(engine)
    try:
        if place.on_twin:
            place.connect().check()
        tally: Tally = engine.destroy(progress)
        say(f"   {tally.sentence()}", style="bright_black")
    except EverstepError as error:
        if not place.on_twin:
            raise
        warn(f"{error.what}; its machines go anyway, so the stack's state is removed instead")
        engine.remove_stack()
        return False
    engine.remove_stack()
    return True


def _refuse_protected(engine: Engine) -> None:
    """Leave a protected stack alone: Pulumi itself would destroy all of it that is not protected first."""
    if not (names := engine.protected()):
        return
    stack = engine.workspace.stack
    raise EverstepError(
        f"the stack {stack} is protected; nothing was destroyed: {', '.join(names)}",
        f"Where it really is to go: set everstep:protect to false in {engine.workspace.stack_file} (and "
        f"environment in everstep:tags to another word than prod, which asks for protection), "
        "run `everstep up`, then `everstep down`.",
    )


def describe_run(folder: Path) -> str | None:
    """What a run's folder holds, for a person who is about to lose it; None where there is none."""
    if not folder.is_dir():
        return None
    checkpoints = len(list(folder.glob("checkpoints/step-*")))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    return f"{checkpoints} checkpoints and the journal, {size:.0f} MiB"
