"""How many examples and schedules the tests draw; `make search` draws more of them, from other seeds."""

import os

EFFORT = int(os.environ.get("EVERSTEP_TEST_EFFORT", "1"))
"""Factor of the numbers of examples and schedules."""
SEARCHES = EFFORT > 1
"""True to look for new examples instead of the usual ones."""
FIRST_SEED = int(os.environ.get("EVERSTEP_TEST_SEED", "0"))


def examples(number: int) -> int:
    """Return the number of examples of a property to generate, usually `number`."""
    return number * EFFORT


def seeds(number: int) -> range:
    """Return the seeds of the schedules to run, usually the first `number`."""
    return range(FIRST_SEED, FIRST_SEED + number * EFFORT)
