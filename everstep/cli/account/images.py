"""The images that pods of a stack pull, by their keys in the stack file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from components.config import StackConfig


def images_of(config: "StackConfig") -> Mapping[str, str]:
    """Return all images that the stack uses, by their keys."""
    platform, etcd = config.platform, config.etcd
    images = {
        "job.image": config.job.image,
        "data.image": config.data.image,
        "controller.image": config.controller.image,
        "etcd.image": etcd.image,
        "etcd.rejoinImage": etcd.rejoin_image if etcd.persistence == "memory" else None,
        "platform.spot.image": platform.spot.image if platform.spot.enabled else None,
        "platform.gpuPlugin.image": platform.gpu_plugin.image
        if platform.gpu_plugin.enabled
        else None,
        "platform.metrics.image": platform.metrics.image if platform.metrics.enabled else None,
    }
    return {key: image for key, image in images.items() if image}
