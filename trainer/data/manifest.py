"""Manifest of a folder of prepared data. It is written last: a folder without it is incomplete."""

import json
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError

MANIFEST_FILE = "manifest.json"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of `folder`, or None if there is none.

    Raises:
        EverstepError: the manifest cannot be read.
    """
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise damage_error(folder, f"{MANIFEST_FILE} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise damage_error(folder, f"{MANIFEST_FILE} is not a JSON object")
    return manifest


def damage_error(folder: Path, problem: str) -> EverstepError:
    """Return the error for damaged prepared data."""
    return EverstepError(
        f"the prepared data in {folder} are damaged: {problem}",
        "Remove the folder and run `python3 -m trainer.prepare` again.",
    )
