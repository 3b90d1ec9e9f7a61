"""The IAM policy of the identity that calls the twin's AWS: a file that a user may write.

Without the file everything is allowed. Only actions are compared, with wildcards in their names, so a policy whose
result depends on anything else is refused. An explicit deny overrides any allow.
"""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cloudfacts.aws_actions import PUSH, actions_to

from cloudtwin.errors import TwinError
from cloudtwin.providers.aws.common import CALLER
from cloudtwin.providers.aws.policies import as_list, document_errors, statements
from cloudtwin.providers.errors import CloudError

UNEVALUATED = ("NotAction", "NotResource", "Condition")


def policy_file(folder: Path) -> Path:
    """Return the file of the policy.

    Args:
        folder: folder of the account.
    """
    return folder / "caller-policy.json"


def authorize(folder: Path, verb: str, token: str) -> None:
    """Check that the policy of the caller allows an operation on a resource.

    Args:
        folder: folder of the account.
        verb: create, update or delete.
        token: type of the resource.

    Raises:
        CloudError: an action is not allowed.
        TwinError: the policy cannot be evaluated.
    """
    document = _read(policy_file(folder))
    if document is None:
        return
    for action in actions_to(verb, token):
        if not allows(document, action):
            reason = "because the identity-based policy does not allow the action"
            message = f"User: {CALLER} is not authorized to perform: {action}, {reason}"
            raise CloudError("AccessDeniedException", message)


def may_push(folder: Path) -> bool:
    """Return True if the policy of the caller allows all actions of a push to the account's registry.

    Args:
        folder: folder of the account.

    Raises:
        TwinError: the policy cannot be evaluated.
    """
    document = _read(policy_file(folder))
    return document is None or all(allows(document, action) for action in PUSH)


def _read(path: Path) -> Mapping[str, Any] | None:
    """Return the policy in a file; None without the file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        errors = [f"it cannot be read: {error}"]
    else:
        errors = [*document_errors(text, "identity")] or [*_unevaluated(json.loads(text))]
    if errors:
        raise TwinError(
            f"The policy of the caller in {path} cannot be evaluated: {'; '.join(errors)}.",
            "Correct the file, or delete it to allow everything.",
        )
    document: Mapping[str, Any] = json.loads(text)
    return document


def _unevaluated(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a valid policy that the twin does not evaluate."""
    for index, statement in enumerate(statements(document)):
        for name in UNEVALUATED:
            if name in statement:
                yield f"Statement[{index}].{name}: the twin compares only actions; leave it out"
        for resource in as_list(statement.get("Resource")):
            if resource != "*":
                yield f'Statement[{index}].Resource: the twin evaluates only "*", not {resource!r}'


def allows(document: Mapping[str, Any], action: str) -> bool:
    """Return True if a policy document that `_read` accepts allows an action."""
    effects = {
        str(statement.get("Effect"))
        for statement in statements(document)
        for pattern in as_list(statement.get("Action"))
        if fnmatchcase(action.lower(), str(pattern).lower())
    }
    return effects == {"Allow"}
