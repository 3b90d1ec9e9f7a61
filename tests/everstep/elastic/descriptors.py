"""A process without free file descriptors, for tests."""

import contextlib
import os
import resource
from collections.abc import Iterator

LIMIT = 300  # more than a process of the tests has open, and few to take


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Take all descriptors that this process may open."""
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
