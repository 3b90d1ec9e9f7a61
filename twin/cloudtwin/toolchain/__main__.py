"""Build missing programs and print the paths of all programs: `python -m cloudtwin.toolchain [NAME ...]`."""

import argparse
import json
import sys

from cloudtwin.errors import TwinError
from cloudtwin.progress import Lines
from cloudtwin.toolchain import ensure_packages, ensure_tools
from cloudtwin.toolchain.binaries import PROGRAMS


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudtwin.toolchain", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument("--json", action="store_true", help="print a JSON object: name -> path")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(PROGRAMS)):
        parser.error(f"unknown program {unknown[0]!r}; the programs are: {', '.join(PROGRAMS)}")
    try:
        ensure_packages(Lines())
        tools = ensure_tools(arguments.names or PROGRAMS, Lines())
    except TwinError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    paths = {name: str(path) for name, path in tools.items()}
    if arguments.json:
        print(json.dumps(paths, indent=2))
    else:
        print("\n".join(f"{name:24} {path}" for name, path in paths.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
