"""`everstep cost`: what a stack costs by the hour, from a dated table; no account is asked."""

import json

from everstep.cli.access import place
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, Stack
from everstep.cli.console import results


def cost(*, stack: Stack = DEFAULT_STACK, as_json: AsJson = False) -> None:
    """Say what the stack costs by the hour, part by part, on spot and on demand."""
    here = place(stack)
    from components.cost import as_json as as_value
    from components.cost import as_text, estimate

    reckoned = estimate(here.config)
    if as_json:
        results.print(json.dumps(as_value(reckoned), indent=2), markup=False)
    else:
        results.print(as_text(reckoned), markup=False)
