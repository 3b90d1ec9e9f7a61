"""Repositories for images, and the budget, of a stack on AWS."""

import json

from tests.unit.components.eks_stack import STACK, document, full, plain


def test_there_is_a_repository_for_each_image_whose_tags_are_written_once() -> None:
    repositories = {one.inputs["name"]: one.inputs for one in full().of("Repository")}

    assert set(repositories) == {"vision/trainer", "vision/controller", "vision/spot"}
    for said in repositories.values():
        assert said["imageTagMutability"] == "IMMUTABLE"
        assert said["imageScanningConfiguration"] == {"scanOnPush": True}
        assert said["forceDelete"] is False, "production's images would go with the stack"


def test_old_images_go() -> None:
    for one in full().of("LifecyclePolicy"):
        (rule,) = json.loads(one.inputs["policy"])["rules"]
        assert rule["selection"]["countNumber"] == 5
        assert rule["action"] == {"type": "expire"}


def test_nodes_pull_and_nobody_is_let_push() -> None:
    policies = full().of("RepositoryPolicy")

    assert len(policies) == 3
    for one in policies:
        (statement,) = document(one)
        assert statement["Principal"] == {"AWS": "arn:aws:iam::123456789012:role/everstep-nodes"}
        assert set(statement["Action"]) == {
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetDownloadUrlForLayer",
        }


def test_the_stack_says_where_images_go() -> None:
    assert full().outputs["registry"] == "123456789012.dkr.ecr.us-east-1.amazonaws.com/vision"
    assert plain().outputs["registry"] is None
    assert not plain().of("Repository")


def test_the_budget_counts_this_stack_and_warns_twice() -> None:
    said = full().one("Budget").inputs

    assert (said["budgetType"], said["timeUnit"]) == ("COST", "MONTHLY")
    assert (said["limitAmount"], said["limitUnit"]) == ("500.00", "USD")
    assert said["costFilters"] == [{"name": "TagKeyValue", "values": [f"user:stack${STACK}"]}]
    assert {(one["threshold"], one["notificationType"]) for one in said["notifications"]} == {
        (80, "ACTUAL"),
        (100, "FORECASTED"),
    }
    for one in said["notifications"]:
        assert one["subscriberEmailAddresses"] == ["owner@example.org"]


def test_without_an_address_there_is_no_budget() -> None:
    assert not plain().of("Budget")
