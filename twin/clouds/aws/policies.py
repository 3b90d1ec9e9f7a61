"""Reads IAM documents: whom a role trusts, whether a document is one. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twin.clouds.model import Inputs, Making
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource

ROLE = "aws:iam/role:Role"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"


def statements(document: object) -> list[Mapping[str, Any]]:
    """Return the statements of a document; none where it is no document."""
    try:
        read = json.loads(document) if isinstance(document, str) else document
    except ValueError:
        return []
    found = read.get("Statement", []) if isinstance(read, Mapping) else []
    return [found] if isinstance(found, Mapping) else list(found)


def many(value: object) -> list[Any]:
    """Return what IAM writes as one value or as a list of them."""
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def document_faults(name: str, inputs: Inputs) -> Iterable[Mistake]:
    """Refuse text that is no IAM document."""
    text = inputs.get(name)
    if not isinstance(text, str):
        return
    try:
        json.loads(text)
    except ValueError as error:
        yield at(name, f"MalformedPolicyDocument: this is no JSON: {error}")
        return
    if not statements(text):
        yield at(name, "MalformedPolicyDocument: there is no Statement in it")
    for statement in statements(text):
        if statement.get("Effect") not in ("Allow", "Deny"):
            yield at(name, "MalformedPolicyDocument: a statement's Effect is Allow or Deny")
        if "Action" not in statement and "NotAction" not in statement:
            yield at(name, "MalformedPolicyDocument: a statement names no Action")


def trusts(role: Resource, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)) -> bool:
    """Tell whether a service may assume a role, in all the ways that it needs."""
    allowed = {
        str(action)
        for statement in statements(role.inputs.get("assumeRolePolicy"))
        if statement.get("Effect") == "Allow" and service in _services(statement)
        for action in many(statement.get("Action"))
    }
    return set(actions) <= allowed or "sts:*" in allowed or "*" in allowed


def _services(statement: Mapping[str, Any]) -> list[Any]:
    principal = statement.get("Principal")
    return many(principal.get("Service")) if isinstance(principal, Mapping) else []


def assumable(
    path: str, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)
) -> "_Assumable":
    """Return a demand: the role named at a path can be assumed by a service."""
    return _Assumable(path, service, actions)


class _Assumable:
    def __init__(self, path: str, service: str, actions: tuple[str, ...]) -> None:
        self._path, self._service, self._actions = path, service, actions

    def __call__(self, making: Making) -> Iterator[str]:
        """Name the roles that the service cannot assume."""
        from twin.clouds.world import values_at

        for arn in values_at(self._path, making.inputs):
            role = making.world.find((ROLE,), str(arn), "arn")
            if role and not trusts(role, self._service, self._actions):
                wanted = " and ".join(self._actions)
                yield (
                    f"the role {role.id} does not let {self._service} assume it: its trust policy "
                    f"must allow {wanted} to the principal {self._service}"
                )


def attached(role: Resource, making: Making) -> set[str]:
    """Return the names of the policies attached to a role."""
    own = (str(each) for each in role.inputs.get("managedPolicyArns") or ())
    theirs = (
        str(each.inputs["policyArn"])
        for each in making.world.all(ATTACHMENT)
        if each.inputs.get("role") in (role.id, role.outputs.get("name"))
    )
    return {arn.rpartition("/")[2] for arn in (*own, *theirs)}
