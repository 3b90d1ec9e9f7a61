"""AWS inputs that the service models, the rules for all resources or the naming rules refuse."""

import json

import pytest
from cloudtwin.providers.aws.common import OBJECT, arn
from cloudtwin.providers.aws.eks_rules import CLUSTER, NODES
from cloudtwin.providers.aws.fsx import ASSOCIATION, FILE_SYSTEM
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.network import INGRESS as NETWORK_RULE
from cloudtwin.providers.aws.network import VPC
from cloudtwin.providers.aws.policies import document_errors
from cloudtwin.providers.aws.s3 import BUCKET, REPOSITORY
from cloudtwin.providers.protocol.values import UNKNOWN, Object, Secret

from twin.tests.providers.aws.cases import TRUST
from twin.tests.providers.offline import Provider

ROLE, ALIAS = "aws:iam/role:Role", "aws:kms/alias:Alias"
BUDGET = "aws:budgets/budget:Budget"
METRICS = "aws:amp/workspace:Workspace"
NETWORK: Object = {"cidrBlock": "10.0.0.0/16"}
NODE: Object = {
    "clusterName": "c", "nodeRoleArn": "arn:aws:iam::123456789012:role/r", "subnetIds": ["s"],
    "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 2},
}  # fmt: skip
LINK: Object = {
    "fileSystemId": f"fs-{'0' * 17}", "fileSystemPath": "/", "dataRepositoryPath": "s3://mine",
}  # fmt: skip
SPENDING: Object = {
    "budgetType": "COST", "timeUnit": "MONTHLY", "limitAmount": "5", "limitUnit": "USD",
}  # fmt: skip
RULE: Object = {"securityGroupId": "sg-1", "ipProtocol": "-1"}


def with_tags(count: int = 0, /, **tags: str) -> Object:
    """Return inputs with a number of generated tags and with the given tags."""
    return {"tags": {**{f"k{n}": "v" for n in range(count)}, **tags}}


# (type, inputs, part of the message)
INVALID: list[tuple[str, Object, str]] = [
    (VPC, {**NETWORK, **with_tags(50)}, "51 tags, at most 50 are allowed"),  # one is the provider's default tag
    (VPC, {**NETWORK, **with_tags(0, **{"k" * 129: "v"})}, "1 to 128"),
    (VPC, {**NETWORK, **with_tags(k="v" * 257)}, "at most 256 are allowed"),
    (VPC, {**NETWORK, **with_tags(0, **{"aws:name": "v"})}, "AWS reserves"),
    (OBJECT, {"bucket": "mine", "key": "k", **with_tags(10)}, "11 tags, at most 10 are allowed"),
    (ROLE, {"assumeRolePolicy": TRUST, **with_tags(Owner="v")}, "differs from another key only in case"),
    (ROLE, {"assumeRolePolicy": TRUST, **with_tags(k="a#b")}, "characters other than"),
    (ROLE, {"assumeRolePolicy": TRUST, "name": "no des"}, "does not match"),
    (ROLE, {"assumeRolePolicy": TRUST, "namePrefix": "n" * 39}, "at most 38 are allowed"),
    (CLUSTER, {"roleArn": "r", "vpcConfig": {"subnetIds": ["a", "b"]}, "name": "-c"}, "does not match"),
    (NODES, {**NODE, "nodeGroupNamePrefix": "n" * 38}, "at most 37 are allowed"),
    (NODES, {**NODE, "taints": [{"key": "k" * 64, "effect": "NO_SCHEDULE"}]}, "at most 63 are allowed"),
    (NODES, {**NODE, "labels": {"k" * 64: "v"}}, "at most 63 are allowed"),
    (NODES, {**NODE, "labels": {"k": ""}}, "at least 1"),
    (NODES, {**NODE, "amiType": "AL3"}, "is not one of"),
    (NODES, {**NODE, "updateConfig": {"maxUnavailablePercentage": 101}}, "at most 100"),
    (TEMPLATE, {"tagSpecifications": [{"resourceType": "machine"}]}, "is not one of"),
    (BUCKET, {"bucketPrefix": "b" * 38}, "at most 37 are allowed"),
    (BUCKET, {"bucket": "192.168.1.1"}, "not a valid bucket name"),
    (REPOSITORY, {"name": "a//b"}, "does not match"),
    (REPOSITORY, {"name": "a" * 257}, "at most 256 are allowed"),
    (FILE_SYSTEM, {"subnetIds": "subnet-1"}, "at least 15"),
    (ASSOCIATION, {**LINK, "s3": {"autoImportPolicy": {"events": ["READ"]}}}, "is not one of NEW"),
    (BUDGET, {"budgetType": "COST", "timeUnit": "MONTHLY", "limitAmount": "100 USD"}, "does not match"),
    (METRICS, {"alias": "a" * 101}, "at most 100 are allowed"),
    (METRICS, {"loggingConfiguration": {"logGroupArn": arn("logs", "log-group:amp", "us-east-1")}}, "does not match"),
    (METRICS, {"kmsKeyArn": arn("kms", "alias/mine", "us-east-1")}, "does not match"),
    (BUDGET, {"budgetType": "COST", "timeUnit": "HOURLY"}, "is not one of DAILY"),
    (BUDGET, {"budgetType": "COST", "timeUnit": "MONTHLY", "metrics": "Cost"}, "one of BlendedCost"),
    (VPC, {**NETWORK, "tags": ["k"]}, "an object is expected"),
    (NODES, {**NODE, "nodeRoleArn": "arn:aws:iam::12:role/r"}, "is not an ARN"),
    (ROLE, {"assumeRolePolicy": TRUST, "managedPolicyArns": ["p"]}, "is not an ARN"),
    (NETWORK_RULE, {**RULE, "cidrIpv4": "10.0.0.7/16"}, "has host bits set"),
    (ROLE, {"assumeRolePolicy": {"Statement": []}}, "no Statement"),  # a document as an object
    (BUCKET, {"acl": "secret"}, "is not one of private"),
]  # fmt: skip
VALID: list[tuple[str, Object]] = [
    (VPC, {**NETWORK, **with_tags(49)}),
    (VPC, {**NETWORK, **with_tags(k="a#b")}),  # EC2 allows all characters
    (OBJECT, {"bucket": "mine", **with_tags(9)}),  # without a key: the provider generates it
    (ALIAS, {"targetKeyId": "k"}),  # the same for the name
    (NODES, {**NODE, "nodeGroupNamePrefix": "n" * 37}),
    (REPOSITORY, {"name": "a--b"}),
    (REPOSITORY, {"name": "a__b/c"}),
    (ASSOCIATION, LINK),
    (BUDGET, {**SPENDING, "metrics": "BlendedCost"}),
    (ROLE, {"assumeRolePolicy": json.loads(TRUST)}),
    (LOGS, {"region": UNKNOWN, "kmsKeyId": arn("kms", "key/k", "us-east-1")}),
]  # fmt: skip


@pytest.mark.parametrize(("token", "inputs", "reason"), INVALID)
def test_invalid_inputs_are_refused_with_the_limit(
    provider: Provider, token: str, inputs: Object, reason: str
) -> None:
    _, failures = provider.check_inputs(token, "r", **inputs)
    assert any(reason in failure for failure in failures), failures


@pytest.mark.parametrize(("token", "inputs"), VALID)
def test_valid_inputs_are_accepted(provider: Provider, token: str, inputs: Object) -> None:
    _, failures = provider.check_inputs(token, "r", **inputs)
    assert failures == [], "the twin must not refuse what the service accepts"


def test_the_error_for_a_limit_does_not_show_a_secret(provider: Provider) -> None:
    _, failures = provider.check_inputs(REPOSITORY, "r", name=Secret("Hunter//2"))
    assert failures
    assert "Hunter" not in str(failures)


ALLOW: Object = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
# (kind of document, document, part of the message; empty if it is valid)
DOCUMENTS: list[tuple[str, object, str]] = [
    ("identity", {"Version": "2012-10-17", "Statement": ALLOW}, ""),
    ("identity", {"Version": "2020-10-17", "Statement": [ALLOW]}, "is not one of 2012-10-17"),
    ("identity", {"Statement": [{**ALLOW, "Resource": "mine"}]}, "neither an ARN nor *"),
    ("identity", {"Statement": [{"Effect": "Allow", "Action": "s3:*"}]}, "one of Resource"),
    ("identity", {"Statement": [{**ALLOW, "Action": "GetObject"}]}, "service:Action"),
    ("identity", {"Statement": [{**ALLOW, "Actions": "s3:*"}]}, "did you mean Action"),
    ("identity", {"Statement": [ALLOW], "Versions": "1"}, "did you mean Version"),
    ("identity", {"Statement": [{**ALLOW, "Principal": "*"}]}, "must not have Principal"),
    ("identity", {"Statement": [{**ALLOW, "NotAction": "s3:*"}]}, "exactly one of Action"),
    ("identity", {"Statement": [{**ALLOW, "Condition": {"StringEqual": {}}}]}, "StringEquals"),
    ("identity", {"Statement": [{**ALLOW, "Condition": {"BoolIfExists": {"a": "b"}}}]}, ""),
    ("identity", {"Statement": [{**ALLOW, "Sid": "a b"}]}, "letters and digits"),
    ("identity", {"Statement": [{**ALLOW, "Sid": "a"}, {**ALLOW, "Sid": "a"}]}, "have the Sid 'a'"),
    ("identity", {"Statement": [{**ALLOW, "Resource": f"arn:{'a' * 6200}"}]}, "at most 6144 are allowed"),
    ("identity", {"Statement": [{**ALLOW, "Action": []}]}, "at least one value"),
    ("identity", {"Statement": [{**ALLOW, "Resource": "arn:aw:s3:::mine"}]}, "invalid partition"),
    ("identity", {"Statement": [{**ALLOW, "Resource": "arn:aws:s3"}]}, "not a complete ARN"),
    ("identity", {"Statement": [{**ALLOW, "Resource": "arn:aws-cn:s3:::mine/*"}]}, ""),
    ("identity", {"Statement": [{**ALLOW, "Condition": {"NullIfExists": {"a": "b"}}}]}, "operator"),
    ("identity", {"Statement": [{**ALLOW, "Condition": {"Bool": {"a": {}}}}]}, "the values of a"),
    ("identity", {"Statement": [ALLOW, "Allow"]}, "must be an object"),
    ("identity", {"Statement": [ALLOW], "Id": 7}, "Id must be a string"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": "*", "Sid": 7}]}, "Sid must be a string"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": "ec2"}]}, "must be * or an object"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": {"Services": "a.b"}}]}, "did you mean Service"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": {"Service": "ec2"}}]}, "eks.amazonaws.com"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": {"AWS": "1234"}}]}, "123456789012"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": {"AWS": []}}]}, "at least one value"),
    ("bucket", {"Statement": [{**ALLOW, "Principal": {"AWS": ["1" * 12, "*"]}}]}, ""),
    ("trust", {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]}, "Principal"),
    ("trust", {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Principal": "*"}]}, "STS"),
    ("bucket", {"Statement": [ALLOW]}, "Principal"),
    ("identity", [], "no Statement"),
    ("identity", {"Statement": []}, "no Statement"),
    ("identity", {"Statement": "Allow"}, "must be an object"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "document", "reason"), DOCUMENTS)
def test_the_grammar_of_policy_documents_is_checked(
    kind: str, document: object, reason: str
) -> None:
    errors = list(document_errors(json.dumps(document), kind))
    assert bool(errors) is bool(reason), errors
    assert any(reason in error for error in errors) or not reason, errors
