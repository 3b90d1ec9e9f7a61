"""Wrong policy documents: each breaks one rule of the IAM User Guide, "Grammar of the IAM JSON policy language"."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

# Type token of a resource -> its input that is a policy document, and the kind of that document.
DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "aws:iam/role:Role": ("assumeRolePolicy", "trust"),
    "aws:iam/rolePolicy:RolePolicy": ("policy", "identity"),
    "aws:s3/bucketPolicy:BucketPolicy": ("policy", "resource"),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": ("policy", "resource"),
}


def wrong_documents(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the mistake and the text of wrong variants of a valid document.

    Args:
        text: a valid document.
        kind: trust (trust policy of a role), identity (identity-based) or resource (resource-based).
    """
    for description, wrong_text in (("not JSON", text[:-1]), ("empty object", "{}"), ("list", f"[{text}]"),
                         ("string", '"Allow"'), ("number", "7"), ("null", "null")):  # fmt: skip
        yield description, wrong_text
    document = json.loads(text)
    for description, change in _document_changes().items():
        yield description, json.dumps({**document, **change})
    statement = document["Statement"][0]
    for description, wrong_statement in _statement_changes(statement, kind):
        yield (
            description,
            json.dumps({**document, "Statement": [wrong_statement, *document["Statement"][1:]]}),
        )
    statements = [{**statement, "Sid": "Same"}, {**statement, "Sid": "Same"}]
    yield "one Sid twice", json.dumps({**document, "Statement": statements})


def _document_changes() -> dict[str, dict[str, Any]]:
    return {
        "Version of another date": {"Version": "2020-10-17"},
        "Version of a wrong type": {"Version": 20121017},
        "empty Version": {"Version": ""},
        "no statements": {"Statement": []},
        "Statement is a string": {"Statement": "Allow"},
        "Statement is a list of strings": {"Statement": ["Allow"]},
        "Statement is null": {"Statement": None},
        "unknown element of the document": {"Statements": []},
        "Id of a wrong type": {"Id": {"a": "b"}},
    }


def _statement_changes(
    statement: Mapping[str, Any], kind: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for description, change in _CHANGES.items():
        yield description, {**statement, **change}
    action = statement.get("Action") or statement.get("NotAction")
    without_action = {
        key: value for key, value in statement.items() if key not in ("Action", "NotAction")
    }
    yield "no Action", without_action
    yield "Action and NotAction", {**without_action, "Action": action, "NotAction": action}
    yield "no Effect", {key: value for key, value in statement.items() if key != "Effect"}
    if "Resource" in statement:
        yield "no Resource", {key: value for key, value in statement.items() if key != "Resource"}
        yield "Resource and NotResource", {**statement, "Resource": "*", "NotResource": "*"}
        for description, resource in _RESOURCES.items():
            yield description, {**statement, "Resource": resource}
    if kind == "identity":
        yield "Principal in an identity-based policy", {**statement, "Principal": "*"}
        yield (
            "NotPrincipal in an identity-based policy",
            {**statement, "NotPrincipal": {"AWS": "*"}},
        )
        return
    yield "no Principal", {key: value for key, value in statement.items() if key != "Principal"}
    for description, principal in _PRINCIPALS.items():
        yield description, {**statement, "Principal": principal}
    if kind == "trust":
        yield "Resource in a trust policy", {**statement, "Resource": "*"}
        yield "action of a service other than STS", {**statement, "Action": "s3:GetObject"}


_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "Effect in lower case": {"Effect": "allow"},
    "Effect of a wrong type": {"Effect": True},
    "Effect in a list": {"Effect": ["Allow"]},
    "unknown Effect": {"Effect": "Permit"},
    "action without a service": {"Action": "GetObject"},
    "action with a space": {"Action": "s3: GetObject"},
    "action with two colons": {"Action": "s3:Get:Object"},
    "action with a slash": {"Action": "s3/GetObject"},
    "empty action": {"Action": ""},
    "action of a wrong type": {"Action": 7},
    "action in an object": {"Action": {"s3": "GetObject"}},
    "no action in the list": {"Action": []},
    "wildcard for the service only": {"Action": "*:GetObject"},
    "unknown element of a statement": {"Actions": "s3:GetObject"},
    "Sid of a wrong type": {"Sid": ["a"]},
    "unknown condition operator": {"Condition": {"StringEqual": {"aws:SourceAccount": "1"}}},
    "condition without keys": {"Condition": {"StringEquals": "aws:SourceAccount"}},
    "condition in a list": {"Condition": [{"StringEquals": {"aws:SourceAccount": "1"}}]},
    "condition is a string": {"Condition": "aws:SourceAccount"},
    "condition value in an object": {
        "Condition": {"StringEquals": {"aws:SourceAccount": {"a": "b"}}}
    },
    "unknown set operator": {"Condition": {"ForEachValue:StringEquals": {"aws:TagKeys": "a"}}},
    "operator Null with IfExists": {"Condition": {"NullIfExists": {"aws:TagKeys": "true"}}},
}
_RESOURCES: Mapping[str, Any] = {
    "resource that is not an ARN": "my-bucket",
    "resource with too few parts": "arn:aws:s3",
    "empty resource": "",
    "resource of a wrong type": 7,
    "resource in an object": {"arn": "*"},
    "no resource in the list": [],
    "partition that does not exist": "arn:aw:s3:::bucket",
}
_PRINCIPALS: Mapping[str, Any] = {
    "principal that is neither * nor an object": "ec2.amazonaws.com",
    "unknown type of principal": {"Services": "ec2.amazonaws.com"},
    "principal without type": {},
    "service that is not a host name": {"Service": "ec2"},
    "account with eleven digits": {"AWS": "12345678901"},
    "principal of a wrong type": {"AWS": 7},
    "principal in a list": [{"AWS": "*"}],
    "no principal in the list": {"AWS": []},
    "principal that is not an ARN": {"AWS": "nonsuch"},
}
