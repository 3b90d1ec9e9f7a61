"""The twin's registry: it stands in for the registries of clouds and for public ones.

Machines reach it inside the twin's network, under every host name; the host reaches it through the network holder's
relay. Rule files define what each host refuses; the providers write the files of ECR and ACR (`providers.registries`).
"""

import secrets
from contextlib import suppress
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.images import oci_layout
from cloudtwin.images.registry_client import Login, Registry, RegistryError
from cloudtwin.nodes.control_plane.components import process_in_network
from cloudtwin.nodes.control_plane.startup import start_component
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.network import addressing, links
from cloudtwin.progress import Progress, Step
from cloudtwin.toolchain import ensure_tools

NAME = "registry"
PUBLISHER = "publisher"  # may push to public registries
MIN_SHARED_BYTES = 1 << 20
REGISTRY_START_SECONDS = 90.0  # limit on a busy host; typically 0.1


def ensure(layout: Layout, cgroups: CgroupHierarchies, progress: Progress) -> None:
    """Start the registry unless it is running. The control plane must be running.

    Raises:
        TwinError: it cannot be built, ends, or does not respond in time.
    """
    running = processes.load(layout.process(NAME))
    if running and running.alive:
        return
    program = ensure_tools([NAME], progress)[NAME]
    network_holder = process_in_network(layout)
    if network_holder is None:
        raise TwinError("The twin's control plane is not running.", "Start it with `up`.")
    rules = rules_folder(layout.state)
    rules.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _publisher(layout) is None:
        password = secrets.token_urlsafe(16)
        path = rules / f"{PUBLISHER}.json"
        files.write_json(path, {"publishers": {PUBLISHER: password}}, files.PRIVATE)
    command = [
        "nsenter",
        f"--net={links.namespace_of(network_holder.pid)}",
        str(program),
        f"-listen={addressing.CONTROL_PLANE}:{addressing.REGISTRY_PORT}",
        f"-data={layout.registry / 'images'}",
        f"-rules={rules}",
    ]
    process = start_component(layout, NAME, command, cgroups)
    processes.wait_until(lambda: _responds(layout) or not process.alive, REGISTRY_START_SECONDS)
    # If another command starts the registry at the same time, this process ends and the other one responds.
    if not _responds(layout):
        process.kill()  # otherwise the next command would consider it running
        raise TwinError("The twin's registry does not respond.", f"Its log: {layout.log(NAME)}")


def client(layout: Layout, host: str, *, as_node: bool = False) -> Registry:
    """Return a client for a host of the registry, logged in as a user who may push there.

    Args:
        layout: the twin's folder.
        host: host of image references, such as `ghcr.io`.
        as_node: log in with the permissions of nodes.

    Raises:
        TwinError: the twin is not running, or has no registry.
    """
    kind = "pull" if as_node else "push"
    for path in rules_folder(layout.state).glob("*.json"):
        registry = (files.read_json(path) or {}).get("registries", {}).get(host)
        if registry is not None:
            user, password = next(iter(registry[kind].items()), ("", ""))
            return Registry(host, Login(user, password) if user else None, endpoint(layout, host))
    return Registry(host, None if as_node else _publisher(layout), endpoint(layout, host))


def publish(layout: Layout, source: Path, host: str, repository: str, tag: str, step: Step) -> str:
    """Upload the image of an OCI layout under any host's name unless the tag already refers to it; return its digest.

    Raises:
        RegistryError: the registry refuses.
        TwinError: the twin is not running, or has no registry.
    """
    registry = client(layout, host)
    digest = oci_layout.read(source)[0].descriptor["digest"]
    if registry.digest(repository, tag) != digest:
        _share_blobs(layout, source, f"{host.replace(':', '_')}/{repository}")
        registry.upload(source, repository, tag, step)
    return str(digest)


def _share_blobs(layout: Layout, source: Path, repository: str) -> None:
    """Hard-link large blobs into the registry's folder: an upload of a gigabyte would take seconds."""
    top = layout.registry / "images" / "docker" / "registry" / "v2"
    for blob in (source / "blobs" / "sha256").iterdir():
        if blob.stat().st_size < MIN_SHARED_BYTES:
            continue
        data = top / "blobs" / "sha256" / blob.name[:2] / blob.name / "data"
        data.parent.mkdir(parents=True, exist_ok=True)
        try:
            with suppress(FileExistsError):
                data.hardlink_to(blob)
        except OSError:  # another file system: it is uploaded
            continue
        link = top / "repositories" / repository / "_layers" / "sha256" / blob.name / "link"
        files.write(link, f"sha256:{blob.name}")


def endpoint(layout: Layout, host: str) -> str:
    """Return the prefix of requests to a host of the registry, from outside the twin's network.

    Raises:
        TwinError: the twin is not running, or was started by a version without a registry.
    """
    settings = files.read_json(layout.settings)
    if settings is None:
        raise TwinError(f"The twin {layout.name!r} is not running.", "Start it with `up`.")
    port = settings.get("registry_port")
    if port is None:
        raise TwinError(
            f"The twin {layout.name!r} was started by an older version, without a registry.",
            "Take it down and start it again.",
        )
    return f"http://127.0.0.1:{port}/v2/{host.replace(':', '_')}"


def rules_folder(state: Path) -> Path:
    """Return the folder of the registry's rules, with one file per writer."""
    return Layout(state).registry / "rules"


def _publisher(layout: Layout) -> Login | None:
    rules = files.read_json(rules_folder(layout.state) / f"{PUBLISHER}.json") or {}
    password = rules.get("publishers", {}).get(PUBLISHER)
    return Login(PUBLISHER, password) if password else None


def _responds(layout: Layout) -> bool:
    try:
        client(layout, "localhost").digest("cloudtwin/absent", "1")
    except RegistryError as error:
        return error.status != 0
    return True
