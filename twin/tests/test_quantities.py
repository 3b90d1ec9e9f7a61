"""The grammar of quantities, with examples from Kubernetes' own tests."""

from decimal import Decimal

import pytest
from cloudtwin import quantities
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("2", 2), (3, 3), (0.5, "0.5"), ("+5", 5), ("-1", -1), ("5.", 5), (".5", "0.5"),
        ("007", 7), ("100n", "1e-7"), ("500u", "0.0005"), ("250m", "0.25"), ("1.5k", 1500),
        ("5M", 5 * 10**6), ("1G", 10**9), ("1T", 10**12), ("1P", 10**15), ("1E", 10**18),
        ("2Ki", 2 << 10), ("2Mi", 2 << 20), ("2Gi", 2 << 30), ("2Ti", 2 << 40), ("2Pi", 2 << 50),
        ("2Ei", 2 << 60), ("1.5Gi", 3 << 29), ("1e3", 1000), ("1E3", 1000), ("1e+3", 1000),
        ("1E-3", "0.001"), ("12E0", 12), (".5e1", 5), (1e22, 2**63 - 1),
    ],
)  # fmt: skip
def test_quantities_are_parsed_as_in_kubernetes(text: str | float, number: float | str) -> None:
    assert quantities.parse(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    [
        "", "Gi", ".", "+", "1K", "1ki", "1ni", "1i", "1Qi", "1 Gi", " 1", "1\n", "1.2.3", "1,5",
        "NaN", "nan", "Infinity", "-", "--1", "1e", "1e1.5", "1e3Gi", "1_000", "0x10", "¹", "\u0661", "1e9999999999",
        float("nan"), float("inf"), True, None,
    ],
)  # fmt: skip
def test_an_invalid_quantity_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="not a valid Kubernetes quantity"):
        quantities.parse(text)


def test_quantities_are_rounded_away_from_zero() -> None:
    assert quantities.parse("0.1n") == Decimal("1e-9")
    assert quantities.parse("1e-999999999") == Decimal("1e-9")
    assert (quantities.units("1"), quantities.units("1500m"), quantities.units("-1.1")) == (
        1,
        2,
        -2,
    )
    assert (quantities.thousandths("100n"), quantities.thousandths("1.0001")) == (1, 1001)


@pytest.mark.parametrize("text", ["9Ei", "12E", "1e999999999", "9" * 40])
def test_a_quantity_is_limited_to_the_range_that_kubernetes_compares(text: str) -> None:
    assert quantities.units(text) == 2**63 - 1
    assert quantities.units(f"-{text}") == -(2**63) + 1


@given(text=st.text("0123456789.+-eEinumkKMGTP", max_size=8))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    try:
        value = quantities.parse(text)
    except ValueError as error:
        assert "not a valid Kubernetes quantity" in str(error)  # noqa: PT017  both results are valid
    else:
        assert abs(value) < 2**63
