"""The policy of the caller: the twin refuses actions that it does not allow."""

import json
from collections.abc import Sequence

import pytest
from cloudfacts.aws_actions import ACTIONS, PUSH, actions_of, actions_to, all_actions
from cloudtwin.errors import TwinError
from cloudtwin.providers.aws.caller_policy import allows, authorize, may_push, policy_file
from cloudtwin.providers.aws.network import VPC
from cloudtwin.providers.aws.s3 import REPOSITORY
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.offline import Provider

BLOCK = "10.0.0.0/16"


def policy(*actions: str, extra: Sequence[Object] = ()) -> Object:
    """Return a policy that allows actions on all resources, with other statements after this one."""
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement, *extra]}


def set_policy(provider: Provider, document: Object) -> None:
    write_policy(provider, json.dumps(document))


def write_policy(provider: Provider, text: str) -> None:
    file = policy_file(provider.account.folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_everything_is_allowed_without_a_policy(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)

    assert [resource.id for resource in provider.account.read().all(VPC)] == [vpc]


def test_the_listed_actions_are_enough_for_the_life_cycle_of_a_resource(provider: Provider) -> None:
    set_policy(provider, policy(*all_actions()))
    provider.delete_resource(VPC, provider.create_resource(VPC, "v", cidrBlock=BLOCK))


@pytest.mark.parametrize("missing", actions_to("create", VPC))
def test_a_creation_needs_each_of_its_actions(provider: Provider, missing: str) -> None:
    other_actions = [action for action in all_actions() if action != missing]
    set_policy(provider, policy(*other_actions))

    with pytest.raises(CloudError, match=f"AccessDeniedException.*{missing}"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    assert not list(provider.account.read().all(VPC))


def test_a_deletion_needs_the_action_that_deletes(provider: Provider) -> None:
    identity = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    other_actions = [action for action in all_actions() if action != "ec2:DeleteVpc"]
    set_policy(provider, policy(*other_actions))

    with pytest.raises(CloudError, match="ec2:DeleteVpc"):
        provider.delete_resource(VPC, identity)


def pushers(provider: Provider) -> list[str]:
    """Return the users who may push to the account's registry, after the creation of a repository."""
    provider.create_resource(REPOSITORY, "images", name="everstep/trainer")
    path = provider.account.folder.parent / "registry" / "rules" / "aws.json"
    (registry,) = json.loads(path.read_text())["registries"].values()
    return list(registry["push"])


@pytest.mark.parametrize("missing", PUSH)
def test_a_push_needs_each_of_its_actions(provider: Provider, missing: str) -> None:
    others = [action for action in PUSH if action != missing]
    set_policy(provider, policy(*all_actions(), *others))

    assert pushers(provider) == [], "the registry would accept a push that ECR refuses"


def test_the_listed_actions_are_enough_for_a_push(provider: Provider) -> None:
    set_policy(provider, policy(*all_actions(), *PUSH))

    assert pushers(provider) == ["AWS"]


@pytest.mark.parametrize("token", ACTIONS)
def test_each_action_of_a_type_belongs_to_an_operation(token: str) -> None:
    verbs = [actions_to(verb, token) for verb in ("create", "update", "delete")]

    assert {action for actions in verbs for action in actions} == set(actions_of(token))


@pytest.mark.parametrize("token", ACTIONS)
def test_no_type_is_created_by_a_caller_without_its_actions(provider: Provider, token: str) -> None:
    set_policy(provider, policy("sts:*"))

    with pytest.raises(CloudError, match="is not authorized to perform"):
        authorize(provider.account.folder, "create", token)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (policy("ec2:*"), True),
        (policy("EC2:CREATEVPC"), True),
        (policy("ec2:Describe*"), False),
        (policy("*", extra=[{"Effect": "Deny", "Action": "ec2:Create*"}]), False),
        ({"Statement": {"Effect": "Allow", "Action": "ec2:CreateVpc"}}, True),
        ({}, False),
    ],
)
def test_actions_match_as_in_iam(document: Object, expected: bool) -> None:
    assert allows(document, "ec2:CreateVpc") is expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("[]", "no Statement"),
        ('{"Statement": []}', "no Statement"),
        (json.dumps(policy("not an action")), r"Statement\[0\]: the action 'not an action'"),
        (json.dumps(policy("*") | {"Satement": []}), "no element 'Satement'"),
    ],
)
def test_a_policy_that_iam_refuses_allows_nothing(
    provider: Provider, text: str, reason: str
) -> None:
    write_policy(provider, text)

    with pytest.raises(TwinError, match=f"caller-policy.json cannot be evaluated: .*{reason}"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    with pytest.raises(TwinError, match=reason):
        may_push(provider.account.folder)
    assert not list(provider.account.read().all(VPC))


@pytest.mark.parametrize("effect", ["Allow", "Deny"])
@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"Action": "*", "Resource": "arn:aws:ec2:*:*:vpc/*"}, "Resource"),
        ({"Action": "*", "Resource": ["*", "arn:aws:ec2:*:*:vpc/*"]}, "Resource"),
        ({"Action": "*", "NotResource": "*"}, "NotResource"),
        ({"NotAction": "ec2:DeleteVpc", "Resource": "*"}, "NotAction"),
        ({"Action": "*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": True}}},
         "Condition"),
    ],
)  # fmt: skip
def test_an_element_that_the_twin_does_not_evaluate_is_refused(
    provider: Provider, fields: Object, effect: str, key: str
) -> None:
    set_policy(provider, policy("*", extra=[{"Effect": effect, **fields}]))

    with pytest.raises(TwinError, match=rf"Statement\[1\]\.{key}: the twin"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)


def test_a_policy_that_cannot_be_read_allows_nothing(provider: Provider) -> None:
    policy_file(provider.account.folder).mkdir(parents=True)

    with pytest.raises(TwinError, match="cannot be read"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
