"""From how few to how many nodes train together, where that changes while they train.

A pod's arguments are fixed when it is made. Its annotations are not, and the kubelet shows them as a
file (the downward API); the maintained controller writes the job's bounds there, as torchrun's
`--nnodes` has them. A file, and not a question to the API server: workers have no right to ask it
anything.
"""

from pathlib import Path

BOUNDS_VARIABLE = "EVERSTEP_NNODES_FILE"  # names the file; absent: the bounds never change


def read_bounds(path: str) -> tuple[int, int] | None:
    """The file's two numbers; None where it is not there or says nothing that makes sense.

    What makes no sense is passed over: the bounds before it are good, and a training that ended
    over a word somebody wrote beside it would be a poor exchange.
    """
    try:
        least, _, most = Path(path).read_text(encoding="utf-8").strip().partition(":")
        bounds = int(least), int(most or least)
    except (OSError, ValueError):
        return None
    return bounds if 1 <= bounds[0] <= bounds[1] else None
