"""Exhaustion of a process's file descriptors, for tests."""

import contextlib
import os
import resource
from collections.abc import Iterator

LIMIT = 300  # more than a test process has open, and few enough to use up


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Use up all file descriptors that this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    descriptors = []
    try:
        with contextlib.suppress(OSError):
            while True:
                descriptors.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in descriptors:
            os.close(descriptor)
