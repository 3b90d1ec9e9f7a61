"""Names that were mistyped, and what was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

from everstep.errors import EverstepError

CLOSE_ENOUGH = 0.5
"""difflib's similarity above which a name is worth suggesting."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names most like this one, best first."""
    return get_close_matches(name, sorted(known), n=3, cutoff=CLOSE_ENOUGH)


def unknown(kind: str, name: str, known: Iterable[str]) -> EverstepError:
    """An error for a name that does not exist, with the nearest ones and then all there are."""
    there = sorted(known)
    close = nearest(name, there)
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    choice = f"There are: {', '.join(there)}." if there else f"There is no {kind} yet."
    return EverstepError(f"there is no {kind} named {name!r}", meant + choice)
