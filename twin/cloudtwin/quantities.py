"""Kubernetes quantities, such as `250m`, `2Gi` and `1e3`. Pure.

Source: the grammar in pkg/api/resource/quantity.go of k8s.io/apimachinery, commit 357557a670d8, 2026-11-27.
"""

import re
from decimal import ROUND_UP, Decimal

# A number, then a decimal exponent or a suffix: `12E` has the suffix E, `12E0` an exponent.
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?0*[0-9]{1,9})|(|[numkMGTPE]|[KMGTPE]i))"
)
SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}  # fmt: skip
SMALLEST = Decimal("1e-9")
MAX_VALUE = Decimal(2**63 - 1)
"""Limit of the integers in which Kubernetes compares quantities."""


def parse(text: str | float) -> Decimal:
    """Return the value of a quantity, at most 2**63 - 1 and rounded away from zero to a billionth, as in Kubernetes.

    Raises:
        ValueError: the text is not a valid quantity.
    """
    match = QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(f"{text!r} is not a valid Kubernetes quantity")
    number, exponent, suffix = match.groups()
    value = _capped(Decimal(f"{number}e{exponent}" if exponent else number))
    if suffix:
        value = _capped(value * SUFFIXES[suffix])
    return value.quantize(SMALLEST, rounding=ROUND_UP)


def _capped(value: Decimal) -> Decimal:
    return max(-MAX_VALUE, min(value, MAX_VALUE))


def units(text: str | float) -> int:
    """Return a quantity as a whole number, rounded away from zero as Kubernetes does.

    Raises:
        ValueError: the text is not a valid quantity.
    """
    return int(parse(text).to_integral_value(ROUND_UP))


def thousandths(text: str | float) -> int:
    """Return a quantity in whole thousandths, rounded away from zero as Kubernetes does.

    Raises:
        ValueError: the text is not a valid quantity.
    """
    return int((parse(text) * 1000).to_integral_value(ROUND_UP))
