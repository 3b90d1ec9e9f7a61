"""A cloud of the twin from the command line's side: what it is told, prepared with, and asked at the end."""

from everstep.cli import stand_ins, toolbox
from everstep.cli.access import Place
from everstep.cli.clouds import CLOUDS
from everstep.cli.console import people, say, warn
from everstep.errors import EverstepError
from everstep.progress import Progress


def show_banner(place: Place) -> None:
    """Say what a run on the twin's cloud proves, and what it does not."""
    from twin.clouds import BANNER

    people.print()
    for line in BANNER.splitlines():
        say(f"   {line}", style="bright_black")
    for name, _ in place.workspace.instead:
        say(
            f"   Everstep's own {name} stands in for the published one, whose image no archive of "
            "EVERSTEP_TWIN_IMAGES holds.",
            style="bright_black",
        )
    people.print()


def prepare(place: Place, progress: Progress) -> None:
    """Build what is missing, start the control plane, let local images answer for published ones.

    Raises:
        EverstepError: the stack names a local image that there is not, or disks.
    """
    if place.config.etcd.persistence == "disk":
        raise EverstepError(
            "the twin's clouds have no disks that a pod could claim, and everstep:etcd.persistence is disk",
            f"Say memory in {place.workspace.stack_file} for as long as you try it here.",
        )
    from twin.clouds.capacity import ensure_control_plane

    present = toolbox.build(progress).references
    wanted = stand_ins.named(place.config)
    stand_ins.require([one for one in wanted if one.is_local], present)
    for one in stand_ins.unanswered(wanted, present):
        warn(f"nothing on the twin stands in for {one.image} (everstep:{one.key})")
    with progress.step("Starting the region: a control plane, and what makes machines"):
        ensure_control_plane(place.workspace.state)
    place.twin().alias_images(stand_ins.aliases(wanted, present))


def left_in_accounts(place: Place) -> list[str]:
    """What the twin's clouds still hold, one line each."""
    from twin.clouds.account import Account

    return [
        f"{CLOUDS[cloud].name}: {resource.token} {resource.name}"
        for cloud in place.clouds
        for resource in Account(place.workspace.state, cloud).read().resources
    ]
