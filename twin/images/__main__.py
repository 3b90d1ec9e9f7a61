"""Build images: `python -m twin.images` all into the twin's store; with NAME one, as archive."""

import argparse
import json
import sys

from everstep.errors import EverstepError
from everstep.progress import Lines
from twin.images import build, ensure_images
from twin.images.recipes import RECIPES
from twin.toolchain import ensure_packages


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m twin.images", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(RECIPES), help="one image only")
    parser.add_argument(
        "--base", metavar="REFERENCE", help="base image instead of our own; with NAME"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args()
    if arguments.base and not arguments.name:
        parser.error("--base needs the NAME of an image")
    try:
        ensure_packages(Lines())
        result = _one(arguments.name, arguments.base) if arguments.name else _all()
    except EverstepError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    values = [
        value
        for entry in result.values()
        for value in (entry if isinstance(entry, list) else [entry])
    ]
    print(json.dumps(result, indent=2) if arguments.json else "\n".join(values))
    return 0


def _one(name: str, base: str | None) -> dict[str, str | list[str]]:
    return {"archive": str(build(name, Lines(), base))}


def _all() -> dict[str, str | list[str]]:
    store = ensure_images(Lines())
    return {"root": str(store.root), "references": list(store.references)}


if __name__ == "__main__":
    sys.exit(main())
