"""The images a twin's nodes run: built from Dockerfiles, kept as one containerd root for all."""

from twin.images.store import ImageStore, build, clone, ensure_images

__all__ = ["ImageStore", "build", "clone", "ensure_images"]
