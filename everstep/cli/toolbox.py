"""What the twin is made from on this machine: programs, Debian packages, images.

`everstep up` makes sure of all of it; `everstep doctor` says what is there without building it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli.clouds import CLOUDS, has_sdk
from everstep.cli.machine import Check
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from twin.images import ImageStore

TOOLS = (
    "pulumi",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "pause",
)


def build(progress: Progress) -> "ImageStore":
    """Make sure of packages, programs and images; build or install what is missing.

    Raises:
        EverstepError: something cannot be built or installed here.
    """
    from twin.images import ensure_images
    from twin.toolchain import ensure_packages, ensure_tools

    ensure_packages(progress)
    ensure_tools(TOOLS, progress)
    return ensure_images(progress)


# --- what doctor says of it ---------------------------------------------------------------------


def programs() -> list[Check]:
    """Each program of the twin: found, built, or to be built by the first `up`."""
    found = [_program(name) for name in TOOLS]
    to_build = [check for check in found if check.pending]
    return [*found, *([_go()] if to_build else [])]


def _program(name: str) -> Check:
    from twin.toolchain.binaries import PROGRAMS
    from twin.toolchain.tools import on_path

    version = PROGRAMS[name].version or "ours"
    if path := on_path(name):
        return Check(name, good=True, found=f"{version}, {path}")
    if built(name):
        return Check(name, good=True, found=f"{version}, built")
    return Check(
        name, good=True, found="not built yet", remedy="The first `up` does.", pending=True
    )


def built(name: str) -> Path | None:
    """Where a program lies that was built from the sources as they are now; None where none does."""
    from twin.paths import cache_directory
    from twin.toolchain.binaries import PROGRAMS
    from twin.toolchain.gobuild import find_go
    from twin.toolchain.tools import module_key

    module = PROGRAMS[name]
    try:
        key = module_key(module, find_go().version)
    except EverstepError:
        return None
    path = cache_directory().absolute() / "toolchain" / f"{module.name}-{key}" / name
    return path if path.exists() else None


def _go() -> Check:
    """Go, asked for only where there is something to build."""
    from twin.toolchain.gobuild import find_go

    try:
        go = find_go()
    except EverstepError as error:
        return Check("go", good=False, found=error.what, remedy=error.remedy)
    return Check("go", good=True, found=f"{go.version}, builds what is not built yet")


def images() -> list[Check]:
    """Whether the images were built; whether the sources changed since is found out by `up`."""
    from twin.images.store import images_folder
    from twin.toolchain import cache

    folder = images_folder()
    stores = cache.versions(folder, "store") if folder.is_dir() else []
    if stores:
        return [Check("images", good=True, found="built")]
    remedy = "The first `up` does; it takes minutes."
    return [Check("images", good=True, found="not built yet", remedy=remedy, pending=True)]


def packages(*, may_install: bool) -> list[Check]:
    """The Debian packages, one line for those that are there and one for each that is not.

    Args:
        may_install: whether `up` can install them here: root, and apt.
    """
    from twin.toolchain.packages import PACKAGES, missing

    lacking = missing()
    there = Check(
        "from Debian",
        good=True,
        found=f"{len(PACKAGES) - len(lacking)} of {len(PACKAGES)} are there",
    )
    return [there, *(_package(one.name, one.purpose, may_install=may_install) for one in lacking)]


def _package(name: str, purpose: str, *, may_install: bool) -> Check:
    if may_install:
        remedy = "The first `up` installs it."
        return Check(name, good=True, found=f"missing; {purpose}", remedy=remedy, pending=True)
    remedy = f"As root: apt-get install --no-install-recommends {name}"
    return Check(name, good=False, found=f"missing; {purpose}", remedy=remedy)


def sdks() -> list[Check]:
    """The SDK of each cloud: only stacks of that cloud need it."""
    return [
        Check(
            f"SDK for {cloud.name}",
            good=True,
            found=f"{cloud.package} is {'installed' if installed else 'not installed'}",
            remedy="" if installed else f"For stacks there: make {cloud.target}",
            pending=not installed,
        )
        for cloud in CLOUDS.values()
        for installed in [has_sdk(cloud)]
    ]
