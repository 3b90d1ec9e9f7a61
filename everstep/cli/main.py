"""Entry point of the `everstep` command: settings that must precede large imports."""

import atexit
import gc
import io
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported, or while the launcher's etcd is built
        sys.exit(128 + signal.SIGINT)


def _run() -> None:
    if sys.argv[1:2] == ["launch"]:  # in an image, the packages of the other commands are absent
        from everstep.cli.launcher import run_launcher

        run_launcher(sys.argv[2:])
    from everstep.cli.termination import termination_as_exception

    with termination_as_exception():
        _run_command()


def _run_command() -> None:
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # an encoding such as ASCII lacks the block characters of bar charts
        sys.stdout.reconfigure(errors="replace")
    from everstep.cli import bytecode
    from everstep.cli.twin_settings import configure_twin

    try:
        configure_twin()
    except RuntimeError:
        sys.exit(
            "error: HOME is not set, and this user has no home folder\n  Set HOME to a folder."
        )
    bytecode.keep()
    from everstep.cli.app import build_app
    from everstep.cli.errors import run_guarded

    debug = "--debug" in sys.argv[1:2] or bool(os.environ.get("EVERSTEP_DEBUG"))
    atexit.register(gc.freeze)  # otherwise the interpreter searches all objects for cycles at exit
    sys.exit(run_guarded(build_app(sys.argv[1:]), debug=debug))


if __name__ == "__main__":  # for callers that may not find the script `everstep`
    main()
