"""Which images a stack names, and which local image answers for a published one on the twin's clouds.

A twin's machines reach no registry, and the programs behind some of the images (a GPU driver's
plugin) have nothing to work on there. The program names the images of the cloud all the same; the
twin's machines know local ones under those names.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.cli.names import nearest
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig

LOCAL = "localhost/everstep"


@dataclass(frozen=True)
class Named:
    """An image that a stack file names or takes by default.

    Attributes:
        key: where it does, below `everstep:`.
        image: the reference.
        local: the local image that does its part on the twin.
    """

    key: str
    image: str
    local: str

    @property
    def is_local(self) -> bool:
        """Whether the reference is one that only the twin builds."""
        return self.image.startswith(f"{LOCAL}/")

    @property
    def stand_in(self) -> str:
        """The reference of the local image."""
        return local(self.local)


def local(name: str) -> str:
    """The reference of an image that the twin builds."""
    return f"{LOCAL}/{name}:local"


def named(config: "StackConfig") -> list[Named]:
    """Every image that pods of the stack will ask for."""
    platform, cluster = config.platform, config.cluster
    always = [
        Named("job.image", config.job.image, "trainer"),
        Named("data.image", config.data.image or config.job.image, "trainer"),
        Named("etcd.image", config.etcd.image, "etcd"),
        Named("controller.image", config.controller.image or local("controller"), "controller"),
    ]
    beside = [
        Named(f"platform.{key}.image", part.image, stand_in)
        for key, part, stand_in in (
            ("spot", platform.spot, "spot"),
            ("gpuPlugin", platform.gpu_plugin, "gpu-plugin"),
            ("metrics", platform.metrics, "gpu-metrics"),
        )
        if part.enabled
    ]
    if cluster.kind == "eks" and cluster.autoscaling.enabled:
        beside.append(Named("cluster.autoscaling.image", cluster.autoscaling.image, "autoscaler"))
    return [*always, *beside]


def given() -> frozenset[str]:
    """The images in the archives that the user gave beside the twin's own.

    Raises:
        EverstepError: what was given is no folder of archives.
    """
    from twin.images import layout
    from twin.images.store import foreign_archives

    return frozenset(
        image.reference for archive in foreign_archives() for image in layout.read(archive)
    )


def in_place_of(config: "StackConfig", present: Collection[str]) -> dict[str, Any]:
    """Sections that take the place of the stack file's on a cloud of the twin.

    The published controller runs only where its image was given; else Everstep's own takes its
    place. That is more than an alias: the two have other rights and another definition of the job.
    """
    controller = config.controller
    if controller.kind == "upstream" and controller.image not in present:
        return {"controller": {"kind": "maintained"}}
    return {}


def aliases(wanted: Sequence[Named], present: Collection[str]) -> dict[str, str]:
    """Local references by the published ones that they answer for.

    An image that is there under its own name, from an archive of the user's, answers for itself.
    """
    return {
        one.image: one.stand_in
        for one in wanted
        if not one.is_local and one.image not in present and one.stand_in in present
    }


def unanswered(wanted: Sequence[Named], present: Collection[str]) -> list[Named]:
    """What is neither there nor answered for."""
    known = {*present, *aliases(wanted, present)}
    return [one for one in wanted if one.image not in known]


def require(wanted: Sequence[Named], present: Collection[str]) -> None:
    """Make sure that images are there under their own names.

    One that is not there now will never come, and pods would wait for it in vain.

    Raises:
        EverstepError: one is missing; with the key that names it and the nearest names.
    """
    lacking = [one for one in wanted if one.image not in present]
    if not lacking:
        return
    faults = ", ".join(dict.fromkeys(f"{one.image} (everstep:{one.key})" for one in lacking))
    near = sorted({close for one in lacking for close in nearest(one.image, present)[:1]})
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise EverstepError(
        f"the twin has no image {faults}",
        f"{meant}There are: {', '.join(sorted(present))}.\n"
        "Its machines reach no registry: an image of yours is given as an OCI archive in "
        "EVERSTEP_TWIN_IMAGES.",
    )
