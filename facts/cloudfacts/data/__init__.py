"""The data files, and the function that reads them."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def load(name: str) -> dict[str, Any]:
    """Return the content of one data file, without its `source` and `date`."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if key not in ("source", "date")}
