"""The images that a stack uses, and their sources for the machines of the twin.

Third-party images, such as the image of the GPU device plugin, need hardware that the twin does not have. Local images
replace them under an alias. Everstep's own images are pulled from the twin's registry, which has the images that a
release publishes, and the images that `everstep images push` has pushed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.catalog import image_reference, names
from everstep.errors import EverstepError
from everstep.spelling import similar_names

if TYPE_CHECKING:
    from components.config import StackConfig

TWIN_PREFIX = "localhost/cloudtwin"
TWIN_IMAGES = frozenset({"gpu-plugin", "gpu-metrics", "autoscaler", "metrics-agent"})
"""Local images that come with the twin."""


@dataclass(frozen=True)
class ImageUse:
    """An image that a stack file names or uses by default.

    Attributes:
        key: its key in the stack file, without `everstep:`.
        reference: its reference.
        stand_in_name: name of the local image that replaces it on the twin, or that it is a copy of.
        own: True for Everstep's own images, which nodes pull from a registry on the twin too.
    """

    key: str
    reference: str
    stand_in_name: str
    own: bool = False

    @property
    def is_local(self) -> bool:
        """True for an image that is built on this machine and that no registry has."""
        return self.reference.startswith((f"{names.LOCAL_IMAGES}/", f"{TWIN_PREFIX}/"))

    @property
    def is_released(self) -> bool:
        """True for one of Everstep's images under the name that a release gives it."""
        released = names.RELEASED_IMAGE.format(self.stand_in_name)
        return self.own and image_reference.is_same(self.reference, released)

    @property
    def stand_in(self) -> str:
        """Reference of the local image that replaces it."""
        return local_reference(self.stand_in_name)


def local_reference(name: str) -> str:
    """Return the reference of an image that the twin builds."""
    return f"{TWIN_PREFIX if name in TWIN_IMAGES else names.LOCAL_IMAGES}/{name}:local"


def images_used(config: "StackConfig") -> list[ImageUse]:
    """Return every image that pods of the stack use."""
    platform, cluster = config.platform, config.cluster
    controller = config.controller.image or local_reference("controller")
    images = [
        ImageUse("job.image", config.job.image, "trainer", own=True),
        ImageUse("data.image", config.data.image or config.job.image, "trainer", own=True),
        ImageUse("etcd.image", config.etcd.image, "etcd"),
        ImageUse(
            "controller.image", controller, "controller", own=config.controller.kind == "maintained"
        ),
    ]
    if config.etcd.rejoins or config.etcd.has_users:
        rejoin = config.etcd.rejoin_image
        images.append(ImageUse("etcd.rejoinImage", rejoin, "etcd-rejoin", own=True))
    add_ons = (
        ("spot", platform.spot, "spot"),
        ("gpuPlugin", platform.gpu_plugin, "gpu-plugin"),
        ("metrics", platform.metrics, "gpu-metrics"),
    )
    images += [
        ImageUse(f"platform.{key}.image", add_on.image, stand_in, own=stand_in == "spot")
        for key, add_on, stand_in in add_ons
        if add_on.enabled
    ]
    if cluster.kind == "eks" and cluster.autoscaling.enabled:
        image = cluster.autoscaling.image
        images.append(ImageUse("cluster.autoscaling.image", image, "autoscaler"))
    if cluster.kind == "eks" and cluster.monitoring.managed_prometheus:
        image = cluster.monitoring.image
        images.append(ImageUse("cluster.monitoring.image", image, "metrics-agent"))
    return images


def user_images() -> frozenset[str]:
    """Return the images in the archives that EVERSTEP_TWIN_IMAGES names.

    Raises:
        TwinError: the variable does not name a folder of archives.
    """
    from cloudtwin.facade import user_images as images

    return images()


def config_overrides(config: "StackConfig", available: Collection[str]) -> dict[str, Any]:
    """Return configuration sections that replace sections of the stack file on a cloud of the twin.

    The upstream controller runs only if its image is available; otherwise Everstep's own controller replaces it. An
    alias is not enough: the two controllers need different permissions and different CRDs of ElasticJob.
    """
    controller = config.controller
    if controller.kind == "upstream" and not is_available(controller.image or "", available):
        return {"controller": {"kind": "maintained"}}
    return {}


def is_available(reference: str, available: Collection[str]) -> bool:
    """Return True if machines have an image, under any name that means the same to containerd."""
    return image_reference.canonical(reference) in map(image_reference.canonical, available)


def image_aliases(images: Sequence[ImageUse], available: Collection[str]) -> dict[str, str]:
    """Return local references by the third-party references that they replace.

    An image that is available under its own name, from the user's archive, is not replaced.
    """
    return {
        image_reference.canonical(image.reference): image.stand_in
        for image in images
        if not image.own
        and not image.is_local
        and not is_available(image.reference, available)
        and image.stand_in in available
    }


def images_to_pull(images: Sequence[ImageUse], available: Collection[str]) -> list[ImageUse]:
    """Return Everstep's own images that machines have to pull, each reference once."""
    own_images = [
        image
        for image in images
        if image.own and not image.is_local and not is_available(image.reference, available)
    ]
    return list({image.reference: image for image in reversed(own_images)}.values())[::-1]


def missing_images(images: Sequence[ImageUse], available: Collection[str]) -> list[ImageUse]:
    """Return third-party images that are neither available nor replaced."""
    present = {*available, *image_aliases(images, available)}
    return [
        image for image in images if not image.own and not is_available(image.reference, present)
    ]


def require_images(images: Sequence[ImageUse], available: Collection[str]) -> None:
    """Check that images are available under their own names.

    Raises:
        EverstepError: an image is missing, so that its pods would never start; the error contains its
            key and similar names.
    """
    absent_images = [image for image in images if not is_available(image.reference, available)]
    if not absent_images:
        return
    image_list = ", ".join(
        dict.fromkeys(f"{image.reference} (everstep:{image.key})" for image in absent_images)
    )
    suggested_names = sorted(
        {name for image in absent_images for name in similar_names(image.reference, available)[:1]}
    )
    suggestion = f"Did you mean {' or '.join(suggested_names)}? " if suggested_names else ""
    raise EverstepError(
        f"the twin has no image {image_list}",
        f"{suggestion}Available images: {', '.join(sorted(available))}.\n"
        "Its machines reach no registry: provide your own image as an OCI archive in "
        "EVERSTEP_TWIN_IMAGES.",
    )
