"""Names of files that may be written."""

import pytest

from everstep.errors import EverstepError
from everstep.staging.entry import check_name, name_problem


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "train/n01/x.JPEG",
        "...",
        "a/..b",
        "ä" * 127,
        "a\nb",
        "x/" * 300 + "y",
        "a\\b",
        "\udcff",
    ],
)
def test_ordinary_names_are_written(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("/etc/passwd", "absolute"),
        ("../x", r"contains '\.\.'"),
        ("a/../../x", r"contains '\.\.'"),
        ("a/..", r"contains '\.\.'"),
        ("a//b", "empty component"),
        ("./a", "'.'"),
        ("", "empty component"),
        ("a/", "empty component"),
        ("a\0b", "NUL"),
        ("a/" + "ä" * 128, "more than 255 bytes"),
    ],
)
def test_a_name_that_may_leave_the_destination_or_cannot_be_written_is_refused(
    name: str, problem: str
) -> None:
    with pytest.raises(EverstepError, match=problem) as error:
        check_name(name, "s3://bucket")
    assert repr(name) in error.value.problem
    assert "s3://bucket" in error.value.problem
