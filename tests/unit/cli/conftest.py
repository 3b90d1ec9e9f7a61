"""Stories that several tests begin with."""

import pytest

from tests.unit.cli.story import Story, drill


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def drilled() -> Story:
    return drill()
