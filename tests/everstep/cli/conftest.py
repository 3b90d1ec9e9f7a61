"""Recorded runs that several tests use."""

import pytest

from tests.everstep.cli.recorded_run import RecordedRun, drill


@pytest.fixture
def recorded_run() -> RecordedRun:
    return RecordedRun()


@pytest.fixture
def drill_run() -> RecordedRun:
    return drill()
