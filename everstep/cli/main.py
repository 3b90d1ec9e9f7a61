"""Where the `everstep` command starts: what must be settled before anything large is imported."""

import os
import sys

from everstep.cli import bytecode


def main() -> None:
    """Run the command line and exit."""
    bytecode.keep()
    from everstep.cli.app import app
    from everstep.cli.failures import guarded

    debug = "--debug" in sys.argv[1:2] or bool(os.environ.get("EVERSTEP_DEBUG"))
    sys.exit(guarded(app, debug=debug))
