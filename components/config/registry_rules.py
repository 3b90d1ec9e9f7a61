"""Rules across the keys of registries: an image is pulled from the registry of each login."""

from collections.abc import Iterable, Mapping

from components.config.faults import ConfigFault
from components.config.rules import ConfigRule
from everstep.catalog.image_reference import domain_of

IMAGES = (
    "job.image",
    "data.image",
    "controller.image",
    "etcd.image",
    "etcd.rejoinImage",
    "platform.spot.image",
    "platform.gpuPlugin.image",
    "platform.metrics.image",
)
"""Keys of the images that pods of a stack may use on every kind of cluster."""

LOGINS = "platform.registryLogins"


def _logins_used(logins: Mapping[str, str], *images: str | None) -> list[ConfigFault]:
    """Check that an image is pulled from the registry of each login."""
    used_domains = domains(images)
    return [
        ConfigFault(
            f"{LOGINS}.{host}",
            user,
            "is a login to a registry from which no image of the stack is pulled",
            f"remove it, or use one of {', '.join(sorted(used_domains))}",
        )
        for host, user in logins.items()
        if host not in used_domains
    ]


def domains(images: Iterable[str | None]) -> set[str]:
    """Return the hosts of the registries of images."""
    return {domain_of(image) for image in images if image}


RULES = (ConfigRule((LOGINS, *IMAGES), _logins_used),)
