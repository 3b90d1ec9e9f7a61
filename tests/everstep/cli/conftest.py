"""Fixtures of the CLI tests: recorded runs, a port that refuses connections, and an interruptible process."""

import signal
import socket
from collections.abc import Iterator

import pytest

from tests.everstep.cli.recorded_run import RecordedRun, drill


@pytest.fixture
def recorded_run() -> RecordedRun:
    return RecordedRun()


@pytest.fixture
def drill_run() -> RecordedRun:
    return drill()


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """Yield a port that refuses connections: it is bound, so that nothing else gets it, and nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let child processes be interrupted: a shell starts background jobs with SIGINT ignored."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
