"""The IAM policy of the identity that calls the twin's AWS: a file that a user may write.

Without the file everything is allowed. Only actions are compared, with wildcards in their names: the resources and
conditions of statements are ignored. An explicit denial wins.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cloudfacts.aws_actions import PUSH, actions_to

from cloudtwin import files
from cloudtwin.providers.aws.common import CALLER
from cloudtwin.providers.aws.policies import as_list
from cloudtwin.providers.errors import CloudError


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
    """
    document = files.read_json(policy_file(folder))
    if document is None:
        return
    for action in actions_to(verb, token):
        if not allows(document, action):
            reason = "because no identity-based policy allows the action"
            message = f"User: {CALLER} is not authorized to perform: {action}, {reason}"
            raise CloudError("AccessDeniedException", message)


def may_push(folder: Path) -> bool:
    """Return True if the policy of the caller allows all actions of a push to the account's registry.

    Args:
        folder: folder of the account.
    """
    document = files.read_json(policy_file(folder))
    return document is None or all(allows(document, action) for action in PUSH)


def allows(document: Mapping[str, Any], action: str) -> bool:
    """Return True if a policy document allows an action, regardless of resources and conditions."""
    effects = {
        str(statement.get("Effect"))
        for statement in as_list(document.get("Statement"))
        for pattern in as_list(statement.get("Action"))
        if fnmatchcase(action.lower(), str(pattern).lower())
    }
    return effects == {"Allow"}
