"""Roles, policies and keys of the twin's AWS."""

import pytest
from cloudtwin.providers.aws.common import arn
from cloudtwin.providers.aws.identity import KEY, POLICY
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.policies import ROLE
from cloudtwin.providers.errors import CloudError

from twin.tests.providers.aws.cases import IDENTITY_DOCUMENT, TRUST
from twin.tests.providers.offline import Provider


def create_role(provider: Provider, **inputs: object) -> None:
    provider.create_resource(ROLE, "r", name="r", assumeRolePolicy=TRUST, **inputs)


def test_the_arn_of_a_role_has_its_path(provider: Provider) -> None:
    create_role(provider, path="/everstep/")

    (role,) = provider.account.read().all(ROLE)
    assert role.outputs["arn"] == arn("iam", "role/everstep/r")


def test_a_boundary_of_the_account_must_exist(provider: Provider) -> None:
    boundary = arn("iam", "policy/boundary")

    with pytest.raises(CloudError, match="does not exist in the account"):
        create_role(provider, permissionsBoundary=boundary)
    provider.create_resource(POLICY, "boundary", name="boundary", policy=IDENTITY_DOCUMENT)
    create_role(provider, permissionsBoundary=boundary)
    with pytest.raises(CloudError, match="still uses it"):
        provider.delete_resource(POLICY, boundary)


def test_a_boundary_of_another_account_is_assumed_to_exist(provider: Provider) -> None:
    create_role(provider, permissionsBoundary="arn:aws:iam::111122223333:policy/boundary")


@pytest.mark.parametrize("path", ["everstep", "/everstep", "everstep/", f"/{'p' * 511}/"])
def test_an_invalid_path_is_refused(provider: Provider, path: str) -> None:
    _, failures = provider.check_inputs(ROLE, "r", assumeRolePolicy=TRUST, path=path)

    assert any(failure.startswith("('path',)") for failure in failures), failures


def test_a_key_of_the_account_must_exist(provider: Provider) -> None:
    provider.create_resource(KEY, "k")
    (key,) = provider.account.read().all(KEY)

    provider.create_resource(LOGS, "mine", name="mine", kmsKeyId=key.outputs["arn"])
    with pytest.raises(CloudError, match="does not exist in the account"):
        provider.create_resource(
            LOGS, "lost", name="lost", kmsKeyId=arn("kms", "key/lost", "us-east-1")
        )


def test_a_key_of_another_account_is_assumed_to_exist(provider: Provider) -> None:
    provider.create_resource(
        LOGS, "l", name="l", kmsKeyId="arn:aws:kms:us-east-1:111122223333:key/theirs"
    )


@pytest.mark.parametrize("key", ["k", "alias/team", arn("kms", "key/far", "us-west-2")])
def test_a_key_of_another_region_or_form_is_refused(provider: Provider, key: str) -> None:
    _, failures = provider.check_inputs(LOGS, "l", name="l", kmsKeyId=key)

    assert any("is not the ARN of a key in us-east-1" in failure for failure in failures), failures
