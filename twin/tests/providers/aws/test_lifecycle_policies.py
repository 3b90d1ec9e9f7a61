"""Lifecycle policies of ECR."""

import json

import pytest
from cloudtwin.providers.aws.lifecycle_policies import lifecycle_policy_error
from cloudtwin.providers.protocol.values import Object

ANY = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 5}
OLD = {
    "tagStatus": "untagged",
    "countType": "sinceImagePushed",
    "countUnit": "days",
    "countNumber": 9,
}
RELEASES = {**ANY, "tagStatus": "tagged", "tagPatternList": ["v*"]}


def policy(*selections: Object, priorities: tuple[int, ...] = (1, 2, 3)) -> str:
    rules = [
        {"rulePriority": priority, "selection": selection, "action": {"type": "expire"}}
        for priority, selection in zip(priorities, selections, strict=False)
    ]
    return json.dumps({"rules": rules})


def test_rules_for_tagged_untagged_and_all_images_are_accepted() -> None:
    assert lifecycle_policy_error(policy(RELEASES, OLD, ANY)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (policy(OLD, ANY, priorities=(1, 1)), "two rules have the rulePriority 1"),
        (policy(OLD, ANY, priorities=(0, 1)), "at least 1"),
        (policy(ANY, OLD), "must have the highest rulePriority"),
        (policy(OLD, OLD), "only one rule may select images with the tagStatus untagged"),
        (policy({**ANY, "tagStatus": "tagged"}), "needs a tagPrefixList"),
        (policy({**ANY, "tagStatus": "some"}), "tagStatus is one of"),
        (policy({**ANY, "countType": "sinceImagePushed"}), "countUnit must be set"),
        (policy({**ANY, "countUnit": "days"}), "if and only if countType begins with since"),
        (policy({**ANY, "countNumber": 0}), "countNumber"),
        ('{"rules": [{"rulePriority": 1}]}', "an object with a selection"),
        ('{"rules": {}}', "no list of rules"),
        ("{", "not valid JSON"),
    ],
)
def test_a_policy_that_ecr_refuses_is_explained(text: str, reason: str) -> None:
    assert reason in str(lifecycle_policy_error(text))
