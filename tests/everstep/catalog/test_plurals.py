"""Numbers with their nouns in messages."""

import pytest

from everstep.catalog.plurals import amount


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "step", "", "0 steps"),
        (1, "step", "", "1 step"),
        (1200, "step", "", "1,200 steps"),
        (1, "loss", "losses", "1 loss"),
        (2, "loss", "losses", "2 losses"),
    ],
)
def test_only_the_number_one_has_the_singular(
    number: int, noun: str, plural: str, text: str
) -> None:
    assert amount(number, noun, plural) == text
