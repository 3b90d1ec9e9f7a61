"""The error of a failed request, and the result of its check."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from everstep.cli.account.checks import AccountCheck, RequestError, run

ERROR = RequestError("eks:DescribeCluster", "AccessDenied", "not allowed")


@contextmanager
def context() -> Iterator[None]:
    yield


def test_a_request_error_passes_through_a_context_manager_unchanged() -> None:
    with pytest.raises(RequestError, match="AccessDenied") as error, context():
        raise ERROR
    assert error.value is ERROR, "an error in place of the refused request would hide its cause"


def raise_error() -> list[AccountCheck]:
    raise ERROR


def test_a_check_whose_request_fails_is_a_warning_that_names_the_request() -> None:
    def check() -> Iterator[AccountCheck]:
        yield from raise_error()

    (result,) = run("zones", check)

    assert (result.name, result.passed, result.fatal) == ("zones", False, False)
    assert result.observed == "not checked: eks:DescribeCluster: AccessDenied: not allowed"
