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
        kind: trust (of a role), identity (of a role's policy) or resource (of a bucket or a repository).
    """
    for description, broken in (("no JSON", text[:-1]), ("empty object", "{}"), ("list", f"[{text}]"),
                         ("text", '"Allow"'), ("number", "7"), ("null", "null")):  # fmt: skip
        yield description, broken
    document = json.loads(text)
    for description, change in _document_changes().items():
        yield description, json.dumps({**document, **change})
    statement = document["Statement"][0]
    for description, changed in _statement_changes(statement, kind):
        yield (
            description,
            json.dumps({**document, "Statement": [changed, *document["Statement"][1:]]}),
        )
    repeated = [{**statement, "Sid": "Same"}, {**statement, "Sid": "Same"}]
    yield "one Sid twice", json.dumps({**document, "Statement": repeated})


def _document_changes() -> dict[str, dict[str, Any]]:
    return {
        "Version of another date": {"Version": "2020-10-17"},
        "Version of a wrong type": {"Version": 20121017},
        "empty Version": {"Version": ""},
        "no statements": {"Statement": []},
        "Statement is text": {"Statement": "Allow"},
        "Statement of texts": {"Statement": ["Allow"]},
        "Statement is null": {"Statement": None},
        "unknown element of the document": {"Statements": []},
        "Id of a wrong type": {"Id": {"a": "b"}},
    }


def _statement_changes(valid: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for description, change in _CHANGES.items():
        yield description, {**valid, **change}
    action = valid.get("Action") or valid.get("NotAction")
    bare = {key: value for key, value in valid.items() if key not in ("Action", "NotAction")}
    yield "no Action", bare
    yield "Action and NotAction", {**bare, "Action": action, "NotAction": action}
    yield "no Effect", {key: value for key, value in valid.items() if key != "Effect"}
    if "Resource" in valid:
        yield "no Resource", {key: value for key, value in valid.items() if key != "Resource"}
        yield "Resource and NotResource", {**valid, "Resource": "*", "NotResource": "*"}
        for description, resource in _RESOURCES.items():
            yield description, {**valid, "Resource": resource}
    if kind == "identity":
        yield "Principal in an identity's policy", {**valid, "Principal": "*"}
        yield "NotPrincipal in an identity's policy", {**valid, "NotPrincipal": {"AWS": "*"}}
        return
    yield "no Principal", {key: value for key, value in valid.items() if key != "Principal"}
    for description, principal in _PRINCIPALS.items():
        yield description, {**valid, "Principal": principal}
    if kind == "trust":
        yield "Resource in a trust policy", {**valid, "Resource": "*"}
        yield "an action that is not of STS", {**valid, "Action": "s3:GetObject"}


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
    "condition is text": {"Condition": "aws:SourceAccount"},
    "condition value in an object": {
        "Condition": {"StringEquals": {"aws:SourceAccount": {"a": "b"}}}
    },
    "wrong quantifier": {"Condition": {"ForEachValue:StringEquals": {"aws:TagKeys": "a"}}},
    "IfExists of Null": {"Condition": {"NullIfExists": {"aws:TagKeys": "true"}}},
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
