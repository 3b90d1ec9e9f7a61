"""The loop in which tests wait for a condition, with a time limit.

Tests and their helpers use it to wait for something that another process, thread or cluster does. Helpers that add a
default limit, a log or another check call `wait_until` and have no loop of their own.

A retry library, such as tenacity, would be one more locked dependency for a loop of six lines, and raises an error of
its own class. A condition that does not hold in time is a failed assertion: pytest reports it as a failure of the test,
and the conformance tests of the controller expect it for failures of the upstream controller.
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
