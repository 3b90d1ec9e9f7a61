"""Describe the Python environment that this file runs in; as JSON if it is run as a program.

It is started by its path under the interpreter of a program's virtual environment, so it imports
nothing from this package.
"""

import json
import platform
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Return this interpreter's version and the installed distributions.

    Returns:
        {"version": str,
         "distributions": [[name, version, is required by another]]}
    """
    versions: dict[str, str] = {}
    required_names: set[str] = set()
    for distribution in distributions():
        versions[_normalize(distribution.metadata["Name"])] = distribution.version
        required_names |= {
            _name(requirement)
            for requirement in distribution.requires or ()
            if "extra ==" not in requirement
        }
    return {
        "version": platform.python_version(),
        "distributions": [
            [name, version, name in required_names] for name, version in sorted(versions.items())
        ],
    }


def providers() -> list[list[str]]:
    """Return name and version of the Pulumi providers that have an SDK here.

    They are found by a file in each SDK; the file lists of all distributions take seconds to read.
    """
    files = sorted(
        {file for entry in sys.path for file in Path(entry).glob("*/pulumi-plugin.json")}
    )
    packages = [json.loads(file.read_text()) for file in files]
    return [
        [package["name"], package.get("version", "")]
        for package in packages
        if package.get("resource")
    ]


def _name(requirement: str) -> str:
    return _normalize(re.split("[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def _normalize(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps({**describe(), "providers": providers()}))
