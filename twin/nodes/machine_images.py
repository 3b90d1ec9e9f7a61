"""Gives machines their images without copying them.

The twin keeps one copy of the store, in hard links, so that it stays whole whatever becomes of the cache. A
machine gets the databases and the small files of it, and sees the unpacked layers through mounts: those are
thirty thousand files, which nobody writes, since containerd puts new layers beside them.
"""

import os
import shutil
from pathlib import Path

from twin.images import ImageStore, clone
from twin.nodes import records
from twin.nodes.layout import Layout

SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs/snapshots")


def keep(store: ImageStore, layout: Layout) -> Path:
    """Return the twin's own copy of a store, made where there is none. Older ones that machines use stay."""
    kept = layout.images / store.key
    if not kept.exists():
        aside = layout.images / f".{store.key}"
        if aside.exists():
            shutil.rmtree(aside)
        clone(store, aside)
        aside.replace(kept)
    used = {record.images for record in records.all_of(layout)} | {store.key}
    for folder in layout.images.iterdir():
        if folder.name not in used:
            shutil.rmtree(folder)
    return kept


def in_use(layout: Layout) -> ImageStore | None:
    """Return the images that were given to machines last, as a store; None where there are none."""
    kept = [folder for folder in layout.images.glob("*") if not folder.name.startswith(".")]
    if not kept:
        return None
    newest = max(kept, key=lambda folder: folder.stat().st_ctime)
    return ImageStore(newest, newest.name, ())


def lay_out(kept: Path, destination: Path) -> None:
    """Make a containerd root for one machine, with empty folders where the layers are to be mounted."""
    for folder, names, files in os.walk(kept):
        source = Path(folder)
        target = destination / source.relative_to(kept)
        target.mkdir(parents=True)
        shutil.copystat(source, target)
        if source.relative_to(kept).parent == SNAPSHOTS:
            names.clear()  # a layer: mounted, not copied
            continue
        for name in files:
            _take(source / name, target / name)


def layers(kept: Path) -> list[Path]:
    """Return the folders to be mounted, relative to a containerd root."""
    return sorted(path.relative_to(kept) for path in (kept / SNAPSHOTS).iterdir())


def _take(source: Path, target: Path) -> None:
    """Link what never changes, named by its digest; copy the rest, such as databases."""
    if source.parent.name == "sha256":
        target.hardlink_to(source)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
