"""Results of a cloud account's checks, and the error of a failed request."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class AccountCheck:
    """The result of one check.

    Attributes:
        name: the checked property.
        passed: True if the property is as required.
        observed: the observed value.
        field: key of the stack file that the check is about; empty if there is none.
        fix: the action that corrects it, or the command that does so.
        fatal: True if a failure stops `pulumi up` or prevents the start of the job.
    """

    name: str
    passed: bool
    observed: str
    field: str = ""
    fix: str = ""
    fatal: bool = True


def fault(name: str, observed: str, field: str, fix: str, *, fatal: bool = True) -> AccountCheck:
    """Return a check that did not pass."""
    return AccountCheck(name, passed=False, observed=observed, field=field, fix=fix, fatal=fatal)


def success(name: str, observed: str, field: str = "") -> AccountCheck:
    """Return a check that passed."""
    return AccountCheck(name, passed=True, observed=observed, field=field)


@dataclass(eq=False)  # not frozen: raising sets __traceback__
class RequestError(Exception):
    """A request that the account's API refused, or that got no response.

    Attributes:
        action: the action, such as `eks:DescribeAddonVersions`.
        code: error code of the service, or name of the client's error.
        message: message of the service.
    """

    action: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.action}: {self.code}: {self.message}"


def run(name: str, check: Callable[[], Iterable[AccountCheck]]) -> Iterator[AccountCheck]:
    """Yield the results of a check; if a request fails, yield one result that names the request.

    Args:
        name: the checked property.
        check: the check, which may raise RequestError.
    """
    try:
        yield from list(check())
    except RequestError as error:
        fix = f"Allow {error.action} for the identity that runs this command, or check it by hand."
        yield AccountCheck(
            name, passed=False, observed=f"not checked: {error}", fix=fix, fatal=False
        )
