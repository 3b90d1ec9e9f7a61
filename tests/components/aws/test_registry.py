"""The image repositories in ECR."""

import json

from tests.components.aws.eks_stack import all_features_stack, plain_stack, policy_statements


def test_each_image_has_a_repository_with_immutable_tags() -> None:
    repositories = {
        resource.inputs["name"]: resource.inputs
        for resource in all_features_stack().of_type("Repository")
    }

    assert set(repositories) == {
        "vision/trainer",
        "vision/controller",
        "vision/spot",
        "vision/etcd-rejoin",
    }
    for actual in repositories.values():
        assert actual["imageTagMutability"] == "IMMUTABLE"
        assert actual["imageScanningConfiguration"] == {"scanOnPush": True}
        assert actual["forceDelete"] is False, (
            "the images of production would be deleted with the stack"
        )


def test_old_images_expire() -> None:
    for resource in all_features_stack().some_of_type("LifecyclePolicy"):
        (rule,) = json.loads(resource.inputs["policy"])["rules"]
        assert rule["selection"]["countNumber"] == 5
        assert rule["action"] == {"type": "expire"}


def test_the_repository_policies_let_nodes_pull_and_grant_nothing_else() -> None:
    policies = all_features_stack().of_type("RepositoryPolicy")

    assert len(policies) == 4
    for policy in policies:
        (statement,) = policy_statements(policy)
        assert statement["Principal"] == {"AWS": "arn:aws:iam::123456789012:role/everstep-nodes"}
        assert set(statement["Action"]) == {
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetDownloadUrlForLayer",
        }


def test_the_registry_address_is_an_output() -> None:
    assert (
        all_features_stack().outputs["registry"]
        == "123456789012.dkr.ecr.us-east-1.amazonaws.com/vision"
    )
    assert plain_stack().outputs["registry"] is None
    assert not plain_stack().of_type("Repository")
