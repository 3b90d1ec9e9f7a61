"""Cloud stacks on the cloud of the twin: banner, preparation, and the check for remaining resources."""

from collections.abc import Sequence

from everstep.catalog import image_reference
from everstep.cli import image_push
from everstep.cli.console import messages, say, warn
from everstep.cli.engine import prerequisites, stand_ins
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.plugins import CLOUDS
from everstep.errors import EverstepError
from everstep.progress import Progress


def show_banner(context: StackContext) -> None:
    """Print the limits of a run on the twin's cloud."""
    from cloudtwin.facade import BANNER

    messages.print()
    for line in BANNER.splitlines():
        say(f"   {line}", style="bright_black")
    for name, _ in context.workspace.overrides:
        say(
            f"   Everstep's own {name} replaces the published one, whose image is in no archive of "
            "EVERSTEP_TWIN_IMAGES.",
            style="bright_black",
        )
    messages.print()


def prepare(context: StackContext, progress: Progress) -> None:
    """Build missing programs and images, start the control plane and the registry, and provide third-party images.

    Raises:
        EverstepError: the stack names an image that does not exist, or needs disks.
        TwinError: a program or image cannot be built here.
    """
    if context.config.etcd.persistence == "disk":
        raise EverstepError(
            "the twin's clouds have no disks for volume claims, but everstep:etcd.persistence is disk",
            f"Set it to memory in {context.workspace.stack_file} while you use the twin.",
        )
    available = prerequisites.build(progress)
    images = stand_ins.images_used(context.config)
    stand_ins.require_images([image for image in images if image.is_local], available)
    for image in stand_ins.missing_images(images, available):
        warn(f"no image on the twin replaces {image.reference} (everstep:{image.key})")
    start(context, progress)
    context.twin().alias_images(stand_ins.image_aliases(images, available))
    provide_own_images(context, stand_ins.images_to_pull(images, available), progress)


def start(context: StackContext, progress: Progress) -> None:
    """Start the control plane, the registry and the daemon that creates machines, unless they run."""
    from cloudtwin.facade import start_region

    from everstep.cli.images import OPTIONS

    with progress.step("Starting the region: control plane, registry and machine provisioner"):
        start_region(context.workspace.state, OPTIONS)


def provide_own_images(
    context: StackContext, images: Sequence[stand_ins.ImageUse], progress: Progress
) -> None:
    """Publish Everstep's images as a release does; check that all other images were pushed.

    Raises:
        EverstepError: the twin's registry lacks an image, so that its pods would never start.
    """
    from cloudtwin.facade import publish_image, registry

    state, missing = context.workspace.state, []
    for image in images:
        reference = image_reference.parse(image.reference)
        if image.is_released:
            recipe = image_push.recipe_named(image.stand_in_name)
            publish_image(state, recipe, reference.domain, reference.path, reference.tag, progress)
            continue
        with image_push.converted_errors(reference.domain):
            client = registry(state, reference.domain, as_node=False)
            if image_push.digest_of(client, reference.path, reference.digest or reference.tag):
                continue
        missing.append(image)
    if missing:
        raise images_not_pushed(context, missing)


def images_not_pushed(context: StackContext, images: Sequence[stand_ins.ImageUse]) -> EverstepError:
    """Return the error for images that no registry has."""
    image_list = ", ".join(f"{image.reference} (everstep:{image.key})" for image in images)
    return EverstepError(
        f"no registry has the image {image_list}",
        f"Push it: everstep images push --stack {context.workspace.stack} --twin\n"
        "It builds the image, pushes it to the twin's registry and writes its digest into "
        f"{context.workspace.stack_file}.\n"
        "You can also provide your own image as an OCI archive in EVERSTEP_TWIN_IMAGES.",
    )


def remaining_resources(context: StackContext) -> list[str]:
    """Return the resources that the twin's cloud accounts still hold."""
    from cloudtwin.facade import remaining_resources as remaining

    return [
        f"{CLOUDS[cloud].name}: {resource}"
        for cloud in context.clouds
        for resource in remaining(context.workspace.state, cloud)
    ]
