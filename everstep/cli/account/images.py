"""The images that pods of a stack pull, by their keys in the stack file, and whether registries have them."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from everstep.catalog.image_reference import ImageReference, parse
from everstep.cli.account.checks import AccountCheck, fault, success
from everstep.cli.registry_logins import registry_at
from everstep.cli.stack_images import KEYS

if TYPE_CHECKING:
    from components.config import StackConfig

PUSH = "Build and push it: `everstep images push`; docs/eks.md and docs/aks.md have the commands."


def images_of(config: "StackConfig") -> Mapping[str, str]:
    """Return all images that the stack uses, by their keys."""
    platform, etcd = config.platform, config.etcd
    images = {
        "job.image": config.job.image,
        "data.image": config.data.image,
        "controller.image": config.controller.image,
        "etcd.image": etcd.image,
        "etcd.rejoinImage": etcd.rejoin_image if etcd.rejoins or etcd.has_users else None,
        "platform.spot.image": platform.spot.image if platform.spot.enabled else None,
        "platform.gpuPlugin.image": platform.gpu_plugin.image
        if platform.gpu_plugin.enabled
        else None,
        "platform.metrics.image": platform.metrics.image if platform.metrics.enabled else None,
        "cluster.autoscaling.image": _autoscaler(config),
        "cluster.monitoring.image": _prometheus_agent(config),
    }
    return {key: image for key, image in images.items() if image}


def _autoscaler(config: "StackConfig") -> str | None:
    """Return the image of the autoscaler that the stack declares; AKS brings its own."""
    cluster = config.cluster
    return (
        cluster.autoscaling.image if cluster.kind == "eks" and cluster.autoscaling.enabled else None
    )


def _prometheus_agent(config: "StackConfig") -> str | None:
    """Return the image of the Prometheus agent that the stack declares; AKS brings its own."""
    cluster = config.cluster
    if cluster.kind == "eks" and cluster.monitoring.managed_prometheus:
        return cluster.monitoring.image
    return None


def check_published(
    config: "StackConfig", is_checked_elsewhere: Callable[[str], bool]
) -> Iterator[AccountCheck]:
    """Check that registries have the images of a stack.

    A registry that does not respond, or requires a login that this machine lacks, is only a warning: the nodes may
    have access to it.

    Args:
        config: the configuration of the stack.
        is_checked_elsewhere: function that returns True for an image that the checks of the account cover.
    """
    from cloudtwin.facade import RegistryError

    present_images: list[str] = []
    silent_domains: set[str] = set()
    for key, image in images_of(config).items():
        if is_checked_elsewhere(image):
            continue
        reference = parse(image)
        if reference.domain in silent_domains:
            continue
        try:
            is_present = _is_present(reference)
        except RegistryError as error:
            silent_domains.add(reference.domain)
            observed = f"{image} was not checked: {error.problem}"
            fix = f"Check it by hand: docker manifest inspect {image}"
            yield fault("images", observed, key, fix, fatal=False)
            continue
        if is_present:
            present_images.append(image)
        else:
            yield _missing(config, key, image)
    if present_images:
        yield success("images", f"{len(present_images)} found in their registries")


def _is_present(reference: ImageReference) -> bool:
    """Return True if an image exists in its registry.

    Raises:
        EverstepError: a file of logins cannot be read.
        RegistryError: the registry does not respond, or requires a login that this machine lacks.
    """
    registry = registry_at(reference.domain)
    return registry.has(reference.path, reference.digest or reference.tag)


def _missing(config: "StackConfig", key: str, image: str) -> AccountCheck:
    """Return the result for an image that its registry does not have.

    The result is not fatal for one of Everstep's images if the stack has its own registry: then `everstep images push`
    replaces the image.
    """
    is_own = key in KEYS.values()
    fix = PUSH if is_own else "Correct the reference, or name a registry that has it."
    is_replaced = is_own and config.registry.kind != "none"
    return fault("images", f"{image} does not exist", key, fix, fatal=not is_replaced)
