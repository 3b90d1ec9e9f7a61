"""Volumes that the CSI plugins of the twin's machines may mount: `<twin>/cloud/volumes.json`.

    {"fs-0123": {"cloud": "aws", "folder": "fs-0123", "allowed": true, "reason": ""},
     "rg#account#container": {"cloud": "azure-native", "folder": ..., "allowed": {"<client id>": ["<subject>"]}}}

The key is the volume handle in the PersistentVolume. `nodes.kubelet.volume_access` describes the fields.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtwin import files


def path(state: Path) -> Path:
    """Return the path of a twin's list of volumes."""
    return state / "cloud" / "volumes.json"


def write(state: Path, cloud: str, volumes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write one cloud's volumes and keep the other cloud's volumes. The caller locks the account."""
    old_entries = files.read_json(path(state)) or {}
    other_entries = {
        handle: entry for handle, entry in old_entries.items() if entry.get("cloud") != cloud
    }
    entries = {
        **other_entries,
        **{handle: {**entry, "cloud": cloud} for handle, entry in volumes.items()},
    }
    if entries != old_entries:
        files.write_json(path(state), entries)
