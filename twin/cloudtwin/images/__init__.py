"""Container images of a twin, built from Dockerfiles and kept in one containerd root for all machines."""

from cloudtwin.images.bases import Base
from cloudtwin.images.recipes import Recipe, stand_in_for
from cloudtwin.images.store import ImageStore, build, clone, ensure_images

__all__ = ["Base", "ImageStore", "Recipe", "build", "clone", "ensure_images", "stand_in_for"]
