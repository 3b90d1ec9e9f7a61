"""The loop in which the tests of the twin wait for a condition, with a time limit.

`wait_until` is a copy of the function in `tests/waiting.py`, whose docstring gives the reasons for it. The twin is a
separate distribution, so its tests import nothing from Everstep.
"""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def wait_until(
    condition: Callable[[], Result | None],
    description: str,
    seconds: float,
    *,
    details: Callable[[], object] = lambda: "",
    interval_seconds: float = 0.1,
) -> Result:
    """Return the first true value of a condition.

    The condition is checked at least once, and again after each pause: no wait fails without a check at its end.

    Args:
        condition: a function without arguments; a false value means "not yet".
        description: what is true once the condition holds, such as "etcd responds".
        seconds: time limit; a check that has begun is not interrupted.
        details: what the error shows in addition, such as a log or a status; it is called only on failure.
        interval_seconds: pause between two checks.

    Raises:
        AssertionError: the condition does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:g} s: {description}\n{details()}")
        time.sleep(interval_seconds)
    return result
