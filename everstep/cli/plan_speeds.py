"""Relative speeds of machine types, from the command line of `everstep plan`."""

from collections.abc import Sequence

from everstep.errors import EverstepError

FIX = "Use --speed TYPE=FACTOR with a type of the stack's pools, such as --speed g6.xlarge=1.2."


def read(texts: Sequence[str], machine_types: Sequence[str]) -> dict[str, float]:
    """Return the speed of each machine type, 1 where it is not given.

    Raises:
        EverstepError: an entry is not a type and a factor, or the type is in no pool.
    """
    speeds = dict.fromkeys(machine_types, 1.0)
    for text in texts:
        name, separator, factor = text.rpartition("=")
        if not separator or name not in speeds:
            valid_types = ", ".join(machine_types) or "none"
            raise EverstepError(
                f"--speed {text!r} does not name a machine type of the pools ({valid_types})", FIX
            )
        speeds[name] = _factor(text, factor)
    return speeds


def _factor(text: str, factor: str) -> float:
    try:
        speed = float(factor)
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 100:
        raise EverstepError(f"--speed {text!r} has no factor between 0.01 and 100", FIX)
    return speed
