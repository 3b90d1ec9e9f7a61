"""Configuration of all tests: the command line's cache of builds, its state folder, rarer garbage collections."""

import atexit
import gc
import sys

from everstep.cli.twin_settings import configure_twin

pytest_plugins = ["twin.tests.control_plane"]

configure_twin()

# By default, Python searches for cycles after 700 new objects; with the classes of the clouds' SDKs, that was a
# quarter of the CPU time of the tests that declare stacks. The price is 30 MB of memory in each process.
gc.set_threshold(20_000, 20, 100)


@atexit.register
def freeze_objects() -> None:
    """Spare the interpreter its last search for cycles, which takes seconds with the classes of the clouds' SDKs.

    Not with triton, which would report all its classes as leaks.
    """
    if "triton" not in sys.modules:
        gc.freeze()
