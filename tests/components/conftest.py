"""Fixtures that several tests of the components share."""

import pytest

from tests.components.existing.existing_stack import maintained_stack, upstream_stack
from tests.components.recorder import Graph


@pytest.fixture(params=[maintained_stack, upstream_stack], ids=["maintained", "upstream"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return the graph of a stack with each of the two controllers."""
    result: Graph = request.param()
    return result
