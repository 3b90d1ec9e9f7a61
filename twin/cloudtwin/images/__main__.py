"""Build images: all of the twin's into its store, or one as an OCI archive."""

import argparse
import json
import sys
from collections.abc import Sequence

from cloudtwin.errors import TwinError
from cloudtwin.images import build, ensure_images
from cloudtwin.images.recipes import Recipe, all_recipes
from cloudtwin.progress import Lines
from cloudtwin.toolchain import ensure_packages


def main(program: str = "python -m cloudtwin.images", recipes: Sequence[Recipe] = ()) -> int:
    """Run the command; return its exit code.

    Args:
        program: the command's name in its help.
        recipes: images in addition to the twin's own.
    """
    recipes_by_name = all_recipes(recipes)
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument(
        "name", nargs="?", choices=list(recipes_by_name), help="build this image only"
    )
    parser.add_argument("--base", metavar="REFERENCE", help="base image; only with NAME")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args()
    if arguments.base and not arguments.name:
        parser.error("--base needs the NAME of an image")
    try:
        ensure_packages(Lines())
        result: dict[str, str | list[str]]
        if arguments.name:
            result = {
                "archive": str(build(recipes_by_name[arguments.name], Lines(), arguments.base))
            }
        else:
            store = ensure_images(Lines(), recipes)
            result = {"root": str(store.root), "references": list(store.references)}
    except TwinError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    lines = [line for v in result.values() for line in (v if isinstance(v, list) else [v])]
    print(json.dumps(result, indent=2) if arguments.json else "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
