"""Minimum and maximum number of nodes that train together, when they change during the run.

A pod's arguments are fixed at its creation. Its annotations are not, and the kubelet exposes them as
a file (the downward API); the maintained controller writes the job's bounds there, in the form of
torchrun's `--nnodes`. The workers read a file instead of calling the API server, because they have
no permissions for it.
"""

from pathlib import Path


def read_bounds(path: str) -> tuple[int, int] | None:
    """Return the minimum and maximum in the file; None if it is missing or invalid.

    Invalid content is ignored, so that the previous bounds stay in force: a typo should not end the run.
    """
    try:
        min_members, _, max_members = Path(path).read_text(encoding="utf-8").strip().partition(":")
        bounds = int(min_members), int(max_members or min_members)
    except (OSError, ValueError):
        return None
    return bounds if 1 <= bounds[0] <= bounds[1] else None
