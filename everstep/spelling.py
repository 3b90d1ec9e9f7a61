"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches

from everstep.errors import EverstepError

MAX_SUGGESTIONS = 3
MIN_SIMILARITY = 0.5
"""Minimum ratio of difflib, from 0 to 1, of a suggested name."""


def similar_names(
    name: str, candidates: Iterable[str], min_similarity: float = MIN_SIMILARITY
) -> list[str]:
    """Return the candidates that are most similar to a name, regardless of case, best first."""
    lowered = {known_name.lower(): known_name for known_name in sorted(candidates)}
    close = get_close_matches(name.lower(), list(lowered), MAX_SUGGESTIONS, min_similarity)
    return [lowered[known_name] for known_name in close]


def unknown_name(kind: str, name: str, candidates: Iterable[str]) -> EverstepError:
    """Return the error for a name that does not exist, with similar names and all valid ones."""
    valid = sorted(candidates)
    close = similar_names(name, valid)
    suggestion = f"Did you mean {' or '.join(close)}? " if close else ""
    choice = f"Known names: {', '.join(valid)}." if valid else "None exists yet."
    return EverstepError(f"there is no {kind} named {name!r}", suggestion + choice)
