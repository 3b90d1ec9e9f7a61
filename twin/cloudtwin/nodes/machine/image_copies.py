"""Images of machines, shared by hard links and mounts.

The twin has a copy of each store that its machines use, consisting of hard links, so that it is independent of the
cache. A machine gets hard links to the blobs and copies of other files, such as databases. The unpacked layers are
mounted: they consist of thirty thousand files, which containerd never changes.
"""

import os
import shutil
from pathlib import Path

from cloudtwin.images import ImageStore, clone
from cloudtwin.nodes import records
from cloudtwin.nodes.layout import Layout

SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs/snapshots")


def keep(store: ImageStore, layout: Layout) -> Path:
    """Return the twin's own copy of a store; create it if necessary, and remove copies that no machine uses.

    The caller holds the twin's lock exclusively, or its slots lock until the machines' records are written: another
    process could remove the copy before a record names it.
    """
    copy = layout.images / store.key
    if not copy.exists():
        temporary = layout.images / f".{store.key}"
        if temporary.exists():
            shutil.rmtree(temporary)
        clone(store, temporary)
        temporary.replace(copy)
    used_keys = {record.images for record in records.all_of(layout)} | {store.key}
    for folder in layout.images.iterdir():
        if folder.name not in used_keys:
            shutil.rmtree(folder)
    return copy


def newest_copy(layout: Layout) -> ImageStore | None:
    """Return the newest images of the twin's machines as a store, or None if there are none."""
    copies = [folder for folder in layout.images.glob("*") if not folder.name.startswith(".")]
    if not copies:
        return None
    # A copy keeps the mtime of its store; its ctime is the time of the rename in `keep`.
    newest = max(copies, key=lambda folder: folder.stat().st_ctime)
    return ImageStore(newest, newest.name, ())


def make_root(store_copy: Path, destination: Path) -> None:
    """Create a containerd root for one machine, with empty folders as mount points of the layers.

    Raises:
        FileExistsError: the destination exists.
    """
    for folder, names, files in os.walk(store_copy):
        source = Path(folder)
        target = destination / source.relative_to(store_copy)
        target.mkdir(parents=True)
        shutil.copystat(source, target)
        if source.relative_to(store_copy).parent == SNAPSHOTS:
            names.clear()  # a layer: mounted, not copied
            continue
        for name in files:
            _copy(source / name, target / name)


def layers(store_copy: Path) -> list[Path]:
    """Return the folders of layers, relative to a containerd root."""
    return sorted(path.relative_to(store_copy) for path in (store_copy / SNAPSHOTS).iterdir())


def _copy(source: Path, target: Path) -> None:
    """Link a file that is named by its digest and never changes; copy others, such as databases."""
    if source.parent.name == "sha256":
        target.hardlink_to(source)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
