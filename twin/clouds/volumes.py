"""What the CSI plugins of the twin's machines may mount: `<twin>/cloud/volumes.json`.

    {"fs-0123": {"cloud": "aws", "folder": "fs-0123", "allowed": true, "reason": ""},
     "rg#account#container": {"cloud": "azure-native", "folder": ..., "allowed": ["<client id>"]}}

The key is the volume handle that the PersistentVolume names; `allowed` is who may mount: everybody,
nobody, or the identities with these client ids; `reason` says why nobody may.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twin.nodes import files


def path(state: Path) -> Path:
    """Return where a twin's volumes are listed."""
    return state / "cloud" / "volumes.json"


def write(state: Path, cloud: str, ours: Mapping[str, Mapping[str, Any]]) -> None:
    """Write one cloud's volumes; those of the other cloud stay. The caller holds the account."""
    there = files.read_json(path(state)) or {}
    others = {handle: each for handle, each in there.items() if each.get("cloud") != cloud}
    wanted = {**others, **{handle: {**each, "cloud": cloud} for handle, each in ours.items()}}
    if wanted != there:
        files.write_json(path(state), wanted)
