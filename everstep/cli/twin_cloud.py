"""A cloud of the twin from the command line's side: what it is told, prepared with, and asked at the end."""

from collections.abc import Collection

from everstep.cli import stand_ins, toolbox
from everstep.cli.access import Place
from everstep.cli.clouds import CLOUDS
from everstep.cli.console import people, say, warn
from everstep.progress import Progress


def show_banner() -> None:
    """Say what a run on the twin's cloud proves, and what it does not."""
    from twin.clouds import BANNER

    people.print()
    for line in BANNER.splitlines():
        say(f"   {line}", style="bright_black")
    people.print()


def prepare(place: Place, progress: Progress) -> None:
    """Build what is missing, start the control plane, let local images answer for published ones.

    Raises:
        EverstepError: the stack names a local image that there is not.
    """
    from twin.clouds.capacity import ensure_control_plane

    present = toolbox.build(progress).references
    wanted = stand_ins.named(place.config)
    stand_ins.require([one for one in wanted if one.is_local], present)
    for one in stand_ins.unanswered(wanted, present):
        warn(f"nothing on the twin stands in for {one.image} (everstep:{one.key})")
    if place.config.controller.kind == "upstream":
        _say_which_controller(place.config.controller.image or "", present)
    with progress.step("Starting the region: a control plane, and what makes machines"):
        ensure_control_plane(place.workspace.state)
    place.twin().alias_images(stand_ins.aliases(wanted, present))


def _say_which_controller(image: str, present: Collection[str]) -> None:
    """The published controller runs only where somebody gave its image."""
    if image not in present:
        say(f"   Everstep's own controller answers for {image}: EVERSTEP_TWIN_IMAGES has it not")


def left_in_accounts(place: Place) -> list[str]:
    """What the twin's clouds still hold, one line each."""
    from twin.clouds.account import Account

    return [
        f"{CLOUDS[cloud].name}: {resource.token} {resource.name}"
        for cloud in place.clouds
        for resource in Account(place.workspace.state, cloud).read().resources
    ]
