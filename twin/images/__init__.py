"""The images a twin's nodes run: built from the project's Dockerfiles, kept as one containerd root for all nodes."""

from twin.images.store import ImageStore, build, clone, ensure_images

__all__ = ["ImageStore", "build", "clone", "ensure_images"]
