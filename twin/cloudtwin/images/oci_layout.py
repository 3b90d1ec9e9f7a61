"""OCI image layouts: a folder, or a tar of one, that holds images as blobs named by their digest.

The steps of this package exchange images as layouts. A folder, unlike a tar, can share large blobs with other
folders by hard links and can be sent to containerd without the blobs that containerd already has.
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cloudtwin.errors import TwinError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
REFERENCE = "org.opencontainers.image.ref.name"
CONTAINERD_REFERENCE = "io.containerd.image.name"
VERSION = b'{"imageLayoutVersion": "1.0.0"}'
EPOCH = "1970-01-01T00:00:00Z"  # equal contents give equal digests, whenever they were built

Json = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """One image in a layout: its reference and its entry in index.json."""

    reference: str
    descriptor: Json


def single_layer(layout: Path, layer: Path, reference: str, config: Json) -> None:
    """Create a layout of one image whose only layer is a tar, which is moved into it."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    size = layer.stat().st_size
    layer.rename(blobs / digest)
    config_descriptor = _put_json(
        blobs,
        {
            "created": EPOCH,
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": EPOCH}],
        },
    )
    manifest = _put_json(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, **config_descriptor},
            "layers": [{"mediaType": LAYER, "digest": f"sha256:{digest}", "size": size}],
        },
    )
    image = Image(reference, {"mediaType": MANIFEST, **manifest})
    (layout / "index.json").write_bytes(_index([image]))
    (layout / "oci-layout").write_bytes(VERSION)


def share_blobs(source: Path, target: Path) -> None:
    """Hard-link the blobs of one layout folder into another, which is created if it does not exist."""
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for blob in (source / "blobs" / "sha256").iterdir():
        with suppress(FileExistsError):
            os.link(blob, blobs / blob.name)


def drop_unused(layout: Path) -> None:
    """Remove the blobs that no image of a layout folder needs."""
    referenced_names: set[str] = set()
    descriptors = [image.descriptor for image in read(layout)]
    while descriptors:
        descriptor = descriptors.pop()
        name = descriptor["digest"].removeprefix("sha256:")
        referenced_names.add(name)
        if re.search("manifest|index", descriptor.get("mediaType", MANIFEST)):
            document = json.loads((layout / "blobs" / "sha256" / name).read_bytes())
            descriptors += document.get("manifests", []) + document.get("layers", [])
            descriptors += [document["config"]] if "config" in document else []
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.name not in referenced_names:
            blob.unlink()


def read(source: Path) -> list[Image]:
    """Return the images of a layout, a folder or a tar.

    An image without a full reference is named after the file: `localhost/<file>:<tag>`.

    Raises:
        TwinError: the source is not an OCI layout.
    """
    try:
        index = json.loads(_read_index(source))
        return [_image_of(descriptor, source) for descriptor in index["manifests"]]
    except (OSError, KeyError, ValueError, TypeError, AttributeError, tarfile.TarError) as error:
        raise TwinError(
            f"{source} is not an OCI archive: {error}",
            "Save it as one: podman save --format oci-archive, skopeo copy ... oci-archive:FILE, "
            "or docker save of Docker 25 or newer.",
        ) from error


def write_archive(
    source: Path, reference: str | None, stream: IO[bytes], existing_blobs: Collection[str]
) -> None:
    """Write a layout as a tar that containerd imports under full references.

    Args:
        source: a layout folder or tar.
        reference: the name of the only image; None keeps the names in the layout.
        stream: destination of the tar; it need not be seekable.
        existing_blobs: names of blobs (hexadecimal digests) that the reader has already; they are left out.

    Raises:
        TwinError: the source is not an OCI layout.
    """
    images = read(source)
    if reference is not None:
        images = [Image(reference, image.descriptor) for image in images]
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, "oci-layout", VERSION)
        _add(archive, "index.json", _index(images))
        for name, size, content in _blobs(source):
            if name not in existing_blobs:
                entry = tarfile.TarInfo(f"blobs/sha256/{name}")
                entry.size = size
                archive.addfile(entry, content)


def _read_index(source: Path) -> bytes:
    if source.is_dir():
        return (source / "index.json").read_bytes()
    with tarfile.open(source) as archive:
        for entry in archive:
            if entry.name.removeprefix("./") == "index.json":
                content = archive.extractfile(entry)
                return content.read() if content else b""
    raise ValueError("it contains no index.json")


def _blobs(source: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size and content of each blob; a content is valid until the next iteration."""
    if source.is_dir():
        for path in sorted((source / "blobs" / "sha256").iterdir()):
            with path.open("rb") as content:
                yield path.name, path.stat().st_size, content
        return
    with tarfile.open(source) as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            content_of_tar = (
                archive.extractfile(entry) if name.startswith("blobs/sha256/") else None
            )
            if content_of_tar:
                yield name.rpartition("/")[2], entry.size, content_of_tar


def _image_of(descriptor: Json, source: Path) -> Image:
    annotations = descriptor.get("annotations") or {}
    name = annotations.get(CONTAINERD_REFERENCE) or annotations.get(REFERENCE) or "latest"
    reference = name if "/" in name or ":" in name else f"localhost/{source.stem.lower()}:{name}"
    return Image(reference, descriptor)


def _index(images: list[Image]) -> bytes:
    entries = []
    for image in images:
        names = {CONTAINERD_REFERENCE: image.reference, REFERENCE: image.reference}
        annotations = {**(image.descriptor.get("annotations") or {}), **names}
        entries.append({**image.descriptor, "annotations": annotations})
    return json.dumps({"schemaVersion": 2, "manifests": entries}).encode()


def _put_json(blobs: Path, document: Json) -> Json:
    """Store a document as a blob; return the part of its descriptor that comes from its content."""
    data = json.dumps(document, sort_keys=True).encode()
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return {"digest": f"sha256:{name}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
