"""Numbers with their nouns, as messages have them."""


def amount(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the plural unless the number is 1: `1 step`, `1,200 steps`.

    Args:
        number: the number, 0 or more.
        noun: the singular.
        plural: the plural; by default, the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
