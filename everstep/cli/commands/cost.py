"""`everstep cost`: hourly cost of a stack from a price table, without access to an account."""

import json

from everstep.cli.commands.options import DEFAULT_STACK, AsJson, Stack
from everstep.cli.console import results
from everstep.cli.engine.context import open_stack


def cost(*, stack: Stack = DEFAULT_STACK, as_json: AsJson = False) -> None:
    """Print the hourly cost of the stack, item by item, on spot and on demand."""
    config = open_stack(stack).config
    from components import cost as costs

    estimate = costs.estimate(config)
    if as_json:
        results.print(json.dumps(costs.as_json(estimate), indent=2), markup=False)
    else:
        results.print(costs.as_text(estimate), markup=False)
