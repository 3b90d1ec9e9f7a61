"""Describes the Python environment that it runs in, as JSON; or, imported, describes ours.

Started by its path under the interpreter of a program's own virtual environment, so it imports
nothing of ours.
"""

import json
import platform
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Describe this interpreter: its version and what is installed.

    Returns:
        {"version": str,
         "distributions": [[name, version, is required by another]]}
    """
    found: dict[str, str] = {}
    required: set[str] = set()
    for one in distributions():
        found[_plain(one.metadata["Name"])] = one.version
        required |= {_name(each) for each in one.requires or () if "extra ==" not in each}
    return {
        "version": platform.python_version(),
        "distributions": [
            [name, version, name in required] for name, version in sorted(found.items())
        ],
    }


def providers() -> list[list[str]]:
    """List the Pulumi providers that have an SDK here: name and version of each.

    They are found by the file that each SDK carries; every distribution's file list would take
    seconds to walk.
    """
    files = sorted(
        {file for entry in sys.path for file in Path(entry).glob("*/pulumi-plugin.json")}
    )
    described = [json.loads(file.read_text()) for file in files]
    return [[each["name"], each.get("version", "")] for each in described if each.get("resource")]


def _name(requirement: str) -> str:
    return _plain(re.split("[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def _plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps({**describe(), "providers": providers()}))
