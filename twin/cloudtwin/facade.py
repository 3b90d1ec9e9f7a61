"""The public interface of the twin: everything that a program outside this distribution may import.

A command line, a test suite or another Pulumi project drives a twin through the names of this module and
through no other module, so that everything behind it can change. Importing it costs a few milliseconds:
classes are loaded on first use, and functions import what they need.

A twin is addressed by its folder (`state_directory(name)`). Errors that a user can fix are `TwinError`s.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cloudtwin.errors import TwinError
from cloudtwin.owned_folders import claim as claim_folder
from cloudtwin.owned_folders import has_foreign_files
from cloudtwin.owned_folders import remove as remove_folder
from cloudtwin.paths import DEFAULT as DEFAULT_TWIN
from cloudtwin.paths import cache_directory, state_directory, twin_name

if TYPE_CHECKING:
    from cloudtwin.images import Base, ImageStore, Recipe, build, ensure_images
    from cloudtwin.images.registry_client import Login, Registry, RegistryError, is_this_machine
    from cloudtwin.nodes import (
        Leftover,
        MachineSpec,
        Role,
        RunningTwin,
        Taint,
        Twin,
        leftovers,
        twins,
    )
    from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
    from cloudtwin.nodes.linux.memory import available_bytes
    from cloudtwin.nodes.options import TwinOptions
    from cloudtwin.progress import Progress
    from cloudtwin.providers import BANNER
    from cloudtwin.toolchain import ensure_packages, ensure_tools
    from cloudtwin.toolchain.packages import Package

__all__ = [
    "BANNER",
    "DEFAULT_TWIN",
    "Base",
    "CgroupHierarchies",
    "ImageStore",
    "Leftover",
    "Login",
    "MachineSpec",
    "Package",
    "ProgramStatus",
    "Recipe",
    "Registry",
    "RegistryError",
    "Role",
    "RunningTwin",
    "SpotPool",
    "Taint",
    "Twin",
    "TwinError",
    "TwinOptions",
    "available_bytes",
    "build",
    "build_context",
    "cache_directory",
    "claim_folder",
    "close_market",
    "engine_backend_url",
    "engine_plugins",
    "ensure_images",
    "ensure_packages",
    "ensure_programs",
    "ensure_tools",
    "go_version",
    "has_foreign_files",
    "images_are_built",
    "install_provider",
    "is_this_machine",
    "kubeconfig_path",
    "leftovers",
    "market_seed",
    "open_market",
    "packages",
    "prestarted_program",
    "program_status",
    "publish_image",
    "reclaim",
    "registry",
    "remaining_resources",
    "remove_folder",
    "replay_market",
    "shared_volume",
    "source_key",
    "spot_pools",
    "start_region",
    "state_directory",
    "twin_name",
    "twins",
    "user_images",
]

_LAZY_MODULES = {
    "BANNER": "cloudtwin.providers",
    "Base": "cloudtwin.images",
    "CgroupHierarchies": "cloudtwin.nodes.linux.cgroups",
    "ImageStore": "cloudtwin.images",
    "Leftover": "cloudtwin.nodes",
    "Login": "cloudtwin.images.registry_client",
    "MachineSpec": "cloudtwin.nodes",
    "Package": "cloudtwin.toolchain.packages",
    "Recipe": "cloudtwin.images",
    "Registry": "cloudtwin.images.registry_client",
    "RegistryError": "cloudtwin.images.registry_client",
    "Role": "cloudtwin.nodes",
    "RunningTwin": "cloudtwin.nodes",
    "Taint": "cloudtwin.nodes",
    "Twin": "cloudtwin.nodes",
    "TwinOptions": "cloudtwin.nodes.options",
    "available_bytes": "cloudtwin.nodes.linux.memory",
    "build": "cloudtwin.images",
    "ensure_images": "cloudtwin.images",
    "ensure_packages": "cloudtwin.toolchain",
    "ensure_tools": "cloudtwin.toolchain",
    "is_this_machine": "cloudtwin.images.registry_client",
    "leftovers": "cloudtwin.nodes",
    "twins": "cloudtwin.nodes",
}
"""Modules of the names that are loaded on first use."""


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY_MODULES[name]), name)


# --- machines -----------------------------------------------------------------------------------


def kubeconfig_path(state: Path) -> Path:
    """Return the path of a twin's administrator kubeconfig, whether it exists or not."""
    from cloudtwin.nodes.layout import Layout

    return Layout(state).kubeconfig


def shared_volume(state: Path) -> Path | None:
    """Return the folder of the first volume that pods of a cloud twin may mount; None before there is one."""
    from cloudtwin import files
    from cloudtwin.nodes.layout import Layout

    layout = Layout(state)
    volumes = files.read_json(layout.volumes) or {}
    folders = sorted({str(entry["folder"]) for entry in volumes.values() if entry["allowed"]})
    return layout.shared / folders[0] if folders else None


# --- clouds -------------------------------------------------------------------------------------


def engine_plugins(home: Path, program: Path) -> Mapping[str, str]:
    """Install a language host and a Kubernetes provider where a Pulumi home has no official ones.

    Args:
        home: PULUMI_HOME.
        program: the `pulumi` program.

    Returns:
        Environment variables to run the program with.
    """
    from cloudtwin.pulumi import install_plugins

    return install_plugins(home, program)


def engine_backend_url(folder: Path) -> str:
    """Return the URL of a backend in a folder whose state stays readable after a SIGKILL at any moment."""
    from cloudtwin.pulumi import backend_url

    return backend_url(folder)


def prestarted_program(
    directory: Path, modules: Sequence[str]
) -> AbstractContextManager[Mapping[str, str]]:
    """Start the process of a Pulumi program before the engine requests its run, and end it on exit.

    Args:
        directory: folder of the program.
        modules: modules that the process imports while the engine starts.

    Returns:
        A context manager of the environment variables with which the engine's language host finds the process.
    """
    from cloudtwin.pulumi import prestart

    return prestart.prestarted_program(directory, modules)


def install_provider(home: Path, cloud: str) -> None:
    """Install the twin's provider of a cloud in a Pulumi home.

    Args:
        home: PULUMI_HOME.
        cloud: `aws` or `azure-native`.

    Raises:
        TwinError: there is no such cloud, or its SDK is not installed.
    """
    from cloudtwin.providers import install

    install(home, cloud)


def start_region(state: Path, options: "TwinOptions | None" = None) -> None:
    """Start the control plane of a cloud twin and the daemon that creates machines for its pools.

    Raises:
        TwinError: the control plane cannot run here.
    """
    from cloudtwin.capacity import ensure_control_plane

    ensure_control_plane(state, options=options)


def registry(state: Path, host: str, *, as_node: bool = False) -> "Registry":
    """Return a client of the twin's registry, which stands in for a host: ECR, ACR or a public one.

    Args:
        state: the twin's folder.
        host: the host's name in image references.
        as_node: log in with the permissions of nodes, not of a user who may push.

    Raises:
        TwinError: the twin has no registry.
    """
    from cloudtwin.nodes.control_plane import registry as component
    from cloudtwin.nodes.layout import Layout

    return component.client(Layout(state), host, as_node=as_node)


def publish_image(
    state: Path, recipe: "Recipe", host: str, repository: str, tag: str, progress: "Progress"
) -> str:
    """Build an image if necessary, upload it to the twin's registry, and return its digest.

    Raises:
        RegistryError: the registry refuses.
        TwinError: the twin has no registry, or the image cannot be built.
    """
    from cloudtwin.images.store import ensure_layout
    from cloudtwin.nodes.control_plane import registry as component
    from cloudtwin.nodes.layout import Layout

    source = ensure_layout(recipe, progress)
    with progress.step(f"Pushing {host}/{repository}:{tag}") as step:
        return component.publish(Layout(state), source, host, repository, tag, step)


def remaining_resources(state: Path, cloud: str) -> list[str]:
    """Return type and name of every resource that remains in the twin's account of a cloud."""
    from cloudtwin.providers.account import Account

    return [
        f"{resource.token} {resource.name}" for resource in Account(state, cloud).read().resources
    ]


# --- spot capacity ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SpotPool:
    """A spot pool of a cloud twin and what its market allows.

    Attributes:
        name: name of the pool; if several spot pools have the same name, `CLUSTER/NAME`.
        desired_size: machines that the pool should have now.
        max_size: machines that the pool may have.
        available: machines that the market and the maximum price allow now; None if neither limits the pool.
        changes: the next changes of the market's capacity: seconds from now and machines allowed.
        price: current price of one machine in USD per hour; None if it is not known.
        prices: the prices of the next hours of the market: seconds from now and USD per hour.
        max_price: price above which the pool has no machines; None for any price.
    """

    name: str
    desired_size: int
    max_size: int
    available: int | None
    changes: tuple[tuple[float, int], ...]
    price: float | None = None
    prices: tuple[tuple[float, float], ...] = ()
    max_price: float | None = None


def spot_pools(state: Path, max_changes: int = 0) -> list[SpotPool]:
    """Return the spot pools of a cloud twin, with at most `max_changes` upcoming changes and prices of each."""
    import time
    from itertools import islice

    from cloudtwin.capacity import MarketConfig, PoolStore, display_names

    market, now = MarketConfig.load(state), time.time()
    pools = [pool for pool in PoolStore(state).all() if pool.capacity == "spot"]
    names = display_names(pools)
    return [
        SpotPool(
            name=names[pool.key],
            desired_size=pool.desired_size,
            max_size=pool.max_size,
            available=market.available(pool, now),
            changes=tuple(
                (change.at_seconds, change.machines)
                for change in islice(market.upcoming(pool, now), max_changes)
            ),
            price=market.price(pool, now),
            prices=tuple(
                (change.at_seconds, change.price)
                for change in market.upcoming_prices(pool, now, max_changes)
            ),
            max_price=pool.max_price,
        )
        for pool in pools
    ]


def market_seed(state: Path) -> str:
    """Return the seed of the open spot market; empty if none is open, or if it replays recorded capacity."""
    from cloudtwin.capacity import MarketConfig

    return MarketConfig.load(state).seed


def open_market(state: Path, seed: str, *, speed: float, changes_per_hour: float) -> None:
    """Open a spot market; the same seed gives the same market.

    Args:
        state: the twin's folder.
        seed: any non-empty text.
        speed: simulated seconds that pass in one real second.
        changes_per_hour: changes of each pool's limit per simulated hour.

    Raises:
        TwinError: the seed is empty, or the speed is not positive and finite; then nothing is changed.
        ValueError: the rate of changes is not positive.
    """
    from cloudtwin.capacity import MarketParameters
    from cloudtwin.capacity import open_market as open_

    open_(state, seed, MarketParameters(changes_per_hour=changes_per_hour), speed)


def replay_market(
    state: Path, machines: Mapping[str, Sequence[int]], gap_seconds: float, *, speed: float
) -> dict[str, str]:
    """Let recorded capacity decide how many spot machines each pool may have, from now on.

    Args:
        state: the twin's folder.
        machines: machines at each tick, by zone; the last values remain valid after the end.
        gap_seconds: simulated seconds between two ticks.
        speed: simulated seconds that pass in one real second.

    Returns:
        The zone in `machines` of each spot pool that the replay limits, by the name of the pool.

    Raises:
        TwinError: no spot pool is in one of the zones, or the speed is not positive and finite.
        ValueError: `gap_seconds` is not positive, or a zone has no value or a negative one.
    """
    from cloudtwin.capacity import PoolStore, Trace, display_names
    from cloudtwin.capacity import replay_market as replay

    trace = Trace(gap_seconds=gap_seconds, machines=machines)
    spot_pools_of_twin = [pool for pool in PoolStore(state).all() if pool.capacity == "spot"]
    names = display_names(spot_pools_of_twin)
    zones_of_pools = {names[pool.key]: trace.zone_of(pool) for pool in spot_pools_of_twin}
    limited = {name: zone for name, zone in zones_of_pools.items() if zone is not None}
    if not limited:
        zones = ", ".join(sorted({pool.zone for pool in spot_pools_of_twin})) or "no zone"
        raise TwinError(
            f"No spot pool is in the zones of the trace: {', '.join(machines)}.",
            f"Name the zones as the stack does. Its spot pools are in {zones}.",
        )
    replay(state, trace, speed)
    return limited


def close_market(state: Path) -> None:
    """Close the spot market and let time pass at its real speed."""
    from cloudtwin.capacity import close_market as close
    from cloudtwin.capacity import compress_time

    close(state)
    compress_time(state, 1.0)


def reclaim(
    state: Path,
    machines: list[str],
    notice_seconds: float,
    unavailable_seconds: float | None = None,
) -> None:
    """Reclaim spot machines at the same time, as their cloud does, and return when they are gone.

    Args:
        state: the twin's folder.
        machines: names of the machines.
        notice_seconds: time between the notice and the removal.
        unavailable_seconds: time from the notice until the pools can have replacements; None: immediately.

    Raises:
        TwinError: a machine does not exist, is not running or belongs to no cloud.
    """
    from cloudtwin.capacity import reclaim as reclaim_machines

    reclaim_machines(state, machines, notice_seconds, unavailable_seconds)


# --- requirements on the host -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ProgramStatus:
    """Version and location of a program of the twin.

    Attributes:
        version: version that the twin uses; empty for its own programs.
        on_path: path of a suitable program on PATH; None if there is none.
        built: path of the program built from the current sources; None if it is not built, or `on_path` is set.
    """

    version: str
    on_path: Path | None
    built: Path | None


def program_status(name: str) -> ProgramStatus:
    """Return the version and location of a program of the twin, without building it."""
    from cloudtwin.toolchain.binaries import PROGRAMS
    from cloudtwin.toolchain.tools import built, on_path

    path = on_path(name)
    return ProgramStatus(
        version=PROGRAMS[name].version, on_path=path, built=None if path else built(name)
    )


def go_version() -> str:
    """Return the version of the Go compiler on this host.

    Raises:
        TwinError: Go is missing or cannot be run.
    """
    from cloudtwin.toolchain.gobuild import find_go

    return find_go().version


def packages() -> "tuple[tuple[Package, ...], tuple[Package, ...]]":
    """Return all Debian packages that the twin needs, and the missing ones."""
    from cloudtwin.toolchain.packages import PACKAGES, missing

    return PACKAGES, tuple(missing())


def ensure_programs(progress: "Progress") -> None:
    """Build every program of the twin that is missing.

    Raises:
        TwinError: Go is missing or a build fails.
    """
    from cloudtwin.toolchain import ensure_tools
    from cloudtwin.toolchain.binaries import PROGRAMS

    ensure_tools(PROGRAMS, progress)


def build_context(recipe: "Recipe", folder: Path, progress: "Progress") -> None:
    """Write the build context of an image to an empty folder, with its Python packages.

    Raises:
        TwinError: a source of the image does not exist, or its packages cannot be fetched.
    """
    from cloudtwin.images.recipes import lay_out
    from cloudtwin.images.store import ensure_wheels

    wheels = ensure_wheels(recipe, progress) if recipe.requirements else None
    lay_out(recipe, folder, wheels=wheels)


def source_key(recipe: "Recipe", base: str = "") -> str:
    """Return a key of an image's sources, and of its base image if it is not the default.

    Raises:
        TwinError: a source of the image does not exist.
    """
    from cloudtwin.images import recipes
    from cloudtwin.toolchain import cache

    sources = recipes.source_key(recipe)
    return cache.digest([sources, base]) if base else sources


def images_are_built() -> bool:
    """Return True if images were built on this host before; they may be stale."""
    from cloudtwin.images.store import images_folder
    from cloudtwin.toolchain import cache

    folder = images_folder()
    return folder.is_dir() and bool(cache.versions(folder, "store"))


def user_images() -> frozenset[str]:
    """Return the references of the images in the archives that CLOUDTWIN_IMAGES names.

    Raises:
        TwinError: the variable does not name a folder of archives.
    """
    from cloudtwin.images import oci_layout
    from cloudtwin.images.store import image_archives

    return frozenset(
        image.reference for archive in image_archives() for image in oci_layout.read(archive)
    )
