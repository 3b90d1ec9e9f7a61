"""IAM policy documents: their grammar, and which services a role trusts. Pure.

Source: IAM User Guide, "Grammar of the IAM JSON policy language" and "IAM and STS quotas".
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.conditions import failure_at
from cloudtwin.providers.inventory import Inventory, Resource, values_at
from cloudtwin.providers.model import InputRule, Inputs, RequestCheck, ResourceRequest
from cloudtwin.providers.schema.check import CheckFailure, nearest

ROLE = "aws:iam/role:Role"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
GRAMMAR = "IAM User Guide, grammar of the policy language"
MALFORMED = "MalformedPolicyDocument"
VERSIONS = ("2012-10-17", "2008-10-17")
TOP_ELEMENTS = ("Version", "Id", "Statement")
ELEMENTS = ("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource",
            "NotResource", "Condition")  # fmt: skip
OPERATORS = frozenset({
    "StringEquals", "StringNotEquals", "StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase",
    "StringLike", "StringNotLike", "NumericEquals", "NumericNotEquals", "NumericLessThan",
    "NumericLessThanEquals", "NumericGreaterThan", "NumericGreaterThanEquals", "DateEquals",
    "DateNotEquals", "DateLessThan", "DateLessThanEquals", "DateGreaterThan",
    "DateGreaterThanEquals", "Bool", "BinaryEquals", "IpAddress", "NotIpAddress", "ArnEquals",
    "ArnLike", "ArnNotEquals", "ArnNotLike", "Null",
})  # fmt: skip
NULL_OPERATOR = "Null"
ACTION = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+")
SID = re.compile(r"[A-Za-z0-9]*")
PARTITION = re.compile(r"arn:(aws(-[a-z]+)*|\*|\$\{[^}]+\}):")
ARN_PARTS = 6
# IAM User Guide, "AWS JSON policy elements: Principal": type -> form of its values, and an example.
PRINCIPALS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "AWS": (
        re.compile(
            r"\*|\d{12}|arn:aws[a-z-]*:(iam|sts)::(\d{12}|cloudfront|\*):\S+|A[A-Z]{3}[A-Z0-9]{12,}"
        ),
        f"{AWS_ACCOUNT} or arn:aws:iam::{AWS_ACCOUNT}:role/name",
    ),
    "Service": (re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+"), "eks.amazonaws.com"),
    "Federated": (
        re.compile(r"arn:aws[a-z-]*:iam::\d{12}:\S+|[a-z0-9.-]+\.[a-z]+"),
        "accounts.google.com",
    ),
    "CanonicalUser": (re.compile(r"[0-9a-f]{64}"), "64 hexadecimal digits"),
}
# Kind of document -> elements that a statement requires and must not have, and the maximum length in
# characters without white space.
KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "identity": (("Action", "Resource"), ("Principal",), 6144),
    "inline": (("Action", "Resource"), ("Principal",), 10240),
    "trust": (("Action", "Principal"), ("Resource",), 2048),
    "bucket": (("Action", "Resource", "Principal"), (), 20480),
    "endpoint": (("Action", "Resource", "Principal"), (), 20480),
    "repository": (("Action", "Principal"), ("Resource",), 10240),
}


def document_rule(name: str, path: str, kind: str) -> InputRule:
    """Return the rule for a policy document of a kind at a top-level path: text, or an object."""

    def violations(inputs: Inputs) -> Iterator[CheckFailure]:
        value = inputs.get(path)
        if value is None:
            return
        text = value if isinstance(value, str) else json.dumps(_copy(value))
        for reason in document_errors(text, kind):
            yield failure_at(path, f"{MALFORMED}: {reason}")

    return InputRule(name, GRAMMAR, violations)


def _copy(document: Any) -> Any:  # noqa: ANN401  inputs are of any type
    """Return a copy of inputs that `json.dumps` accepts; it reads each value, so that unknown values are recorded."""
    if isinstance(document, Mapping):
        return {key: _copy(value) for key, value in document.items()}
    return [_copy(item) for item in document] if isinstance(document, list) else document


def document_errors(text: str, kind: str) -> Iterator[str]:
    """Yield the errors in the text of a policy document.

    Args:
        text: JSON.
        kind: key of KINDS.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        yield f"this is not valid JSON: {error}"
        return
    if not isinstance(document, Mapping) or not document.get("Statement"):
        yield "the document has no Statement"
        return
    if not all(isinstance(item, Mapping) for item in as_list(document["Statement"])):
        yield "every Statement must be an object"
    if not isinstance(document.get("Id", ""), str):
        yield "Id must be a string"
    length, max_length = len("".join(text.split())), KINDS[kind][2]
    if length > max_length:
        yield f"the document has {length} characters without white space, at most {max_length} are allowed"
    yield from _unknown_elements(document, TOP_ELEMENTS, "the document")
    if document.get("Version", VERSIONS[0]) not in VERSIONS:
        yield f"Version {document['Version']!r} is not one of {', '.join(VERSIONS)}"
    sids = [item["Sid"] for item in statements(document) if "Sid" in item]
    for sid in sorted({str(sid) for sid in sids if sids.count(sid) > 1}):
        yield f"two statements have the Sid {sid!r}"
    for index, statement in enumerate(statements(document)):
        for reason in _statement_errors(statement, kind):
            yield f"Statement[{index}]: {reason}"


def _unknown_elements(
    element: Mapping[str, Any], valid_keys: Iterable[str], location: str
) -> Iterator[str]:
    for key in element:
        if key not in valid_keys:
            yield f"{location} has no element {key!r}{nearest(key, valid_keys)}"


def _statement_errors(statement: Mapping[str, Any], kind: str) -> Iterator[str]:
    required, forbidden, _ = KINDS[kind]
    yield from _unknown_elements(statement, ELEMENTS, "a statement")
    if statement.get("Effect") not in ("Allow", "Deny"):
        yield "Effect must be Allow or Deny"
    for name in required:
        present_forms = [base for base in _forms(name) if base in statement]
        if len(present_forms) != 1:
            yield f"exactly one of {name} and Not{name} is required, not {len(present_forms)}"
    for name in (form for base in forbidden for form in _forms(base) if form in statement):
        yield f"a policy of this kind must not have {name}"
    yield from _value_errors(statement)
    yield from _principal_errors(statement)
    yield from _trust_action_errors(statement, kind)
    if not isinstance(statement.get("Sid", ""), str):
        yield "Sid must be a string"
    elif kind != "bucket" and not SID.fullmatch(str(statement.get("Sid", ""))):
        yield f"the Sid {statement['Sid']!r} has characters other than letters and digits"
    yield from _condition_errors(statement.get("Condition", {}))


def _forms(element: str) -> tuple[str, str]:
    return element, f"Not{element}"


def _value_errors(statement: Mapping[str, Any]) -> Iterator[str]:
    for name in (form for base in ("Action", "Resource") for form in _forms(base)):
        if statement.get(name) == []:
            yield f"{name} must have at least one value"
    for action in (value for form in _forms("Action") for value in as_list(statement.get(form))):
        if not ACTION.fullmatch(str(action)):
            yield f"the action {action!r} is not of the form service:Action"
    for resource in (
        value for form in _forms("Resource") for value in as_list(statement.get(form))
    ):
        if reason := _resource_error(resource):
            yield reason


def _resource_error(resource: object) -> str | None:
    text = str(resource)
    if resource == "*" or text.startswith("${"):
        return None
    if not text.startswith("arn:"):
        return f"the resource {resource!r} is neither an ARN nor *"
    if not PARTITION.match(text):
        return f"the resource {resource!r} has an invalid partition: use one such as aws"
    is_complete = len(text.split(":")) >= ARN_PARTS or "*" in text
    return None if is_complete else f"the resource {resource!r} is not a complete ARN"


def _principal_errors(statement: Mapping[str, Any]) -> Iterator[str]:
    for form in _forms("Principal"):
        principal = statement.get(form, "*")
        if principal == "*":
            continue
        if not isinstance(principal, Mapping) or not principal:
            yield f"Invalid principal in policy: {form} must be * or an object with {', '.join(PRINCIPALS)}"
            continue
        yield from _unknown_elements(principal, PRINCIPALS, form)
        for kind in principal.keys() & PRINCIPALS.keys():
            yield from _invalid_principals(kind, principal[kind])


def _invalid_principals(kind: str, principals: object) -> Iterator[str]:
    pattern, example = PRINCIPALS[kind]
    if not as_list(principals):
        yield f"Invalid principal in policy: {kind} must have at least one value"
    for principal in as_list(principals):
        if not isinstance(principal, str) or not pattern.fullmatch(principal):
            yield f"Invalid principal in policy: {kind} {principal!r} is not of the form {example}"


def _trust_action_errors(statement: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield an error for each action in a trust policy that is not an action of STS."""
    for action in as_list(statement.get("Action")) if kind == "trust" else ():
        if action != "*" and not str(action).lower().startswith("sts:"):
            yield f"AssumeRole policy may only specify STS AssumeRole actions, not {action!r}"


def _condition_errors(condition: object) -> Iterator[str]:
    if not isinstance(condition, Mapping):
        yield "Condition must be an object"
        return
    for name, keys in condition.items():
        operator = name.removeprefix("ForAllValues:").removeprefix("ForAnyValue:")
        is_null = operator == f"{NULL_OPERATOR}IfExists"
        if is_null or operator.removesuffix("IfExists") not in OPERATORS:
            yield f"{name!r} is not a condition operator{nearest(operator, OPERATORS)}"
        if not isinstance(keys, Mapping):
            yield f"the operator {name} must have condition keys and values"
            continue
        for key, values in keys.items():
            if any(isinstance(value, Mapping | list) for value in as_list(values)):
                yield f"the values of {key} must be strings, numbers or booleans"


def statements(document: object) -> list[Mapping[str, Any]]:
    """Return the statements of a document; none if it is not a policy document."""
    try:
        content = json.loads(document) if isinstance(document, str) else document
    except ValueError:
        return []
    values = content.get("Statement", []) if isinstance(content, Mapping) else []
    return [statement for statement in as_list(values) if isinstance(statement, Mapping)]


def as_list(value: object) -> list[Any]:
    """Return the values that IAM writes as one value or as a list."""
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def trusts(role: Resource, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)) -> bool:
    """Return True if a service may assume a role with all of these actions."""
    allowed_actions = {
        str(action)
        for statement in statements(role.inputs.get("assumeRolePolicy"))
        if statement.get("Effect") == "Allow" and service in _services(statement)
        for action in as_list(statement.get("Action"))
    }
    return set(actions) <= allowed_actions or "sts:*" in allowed_actions or "*" in allowed_actions


def _services(statement: Mapping[str, Any]) -> list[Any]:
    principal = statement.get("Principal")
    return as_list(principal.get("Service")) if isinstance(principal, Mapping) else []


def assume_role_check(
    path: str, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)
) -> RequestCheck:
    """Return a check that a service can assume the roles at a path."""

    def violations(request: ResourceRequest) -> Iterator[str]:
        for arn in values_at(path, request.inputs):
            role = request.account.find((ROLE,), arn, "arn")
            if role and not trusts(role, service, actions):
                yield (
                    f"the role {role.id} does not let {service} assume it: its trust policy must "
                    f"allow {' and '.join(actions)} to the principal {service}"
                )

    return violations


def attached_policies(role: Resource, account: Inventory) -> set[str]:
    """Return the names of the policies attached to a role."""
    managed_arns = (str(arn) for arn in role.inputs.get("managedPolicyArns") or ())
    attached_arns = (
        str(attachment.inputs["policyArn"])
        for attachment in account.all(ATTACHMENT)
        if attachment.inputs.get("role") in (role.id, role.outputs.get("name"))
    )
    return {arn.rpartition("/")[2] for arn in (*managed_arns, *attached_arns)}
