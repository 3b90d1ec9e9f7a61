"""The IAM actions of a stack: for every declared type, and spelled as AWS spells them."""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
from botocore.loaders import Loader
from cloudfacts import azure_actions
from cloudfacts.aws_actions import ACTIONS, DOCTOR, TASKS, UNSCOPED, actions_of, all_actions

from everstep.cli.account import aws_account
from everstep.cli.account.aws_actions import with_table
from everstep.resources import PACKAGES
from tests.components.aws.eks_stack import all_features_stack, existing_vpc_stack, plain_stack

SERVICES = {
    "aps": "amp", "autoscaling": "autoscaling", "ec2": "ec2", "ecr": "ecr", "eks": "eks", "fsx": "fsx",
    "iam": "iam", "kms": "kms", "logs": "logs", "servicequotas": "service-quotas", "sts": "sts",
}  # fmt: skip
ACTIONS_WITHOUT_OPERATION = {"iam:PassRole"}
REQUEST = re.compile(r'_(?:call|call_if_exists|pages)\(\s*"([a-z0-9-]+)",\s*"([A-Za-z]+)"')
SERVICES_WITH_OTHER_NAMES = {"s3", "budgets"}
"""Services some of whose actions and operations have different names."""


@cache
def operations(service: str) -> frozenset[str]:
    """Return the operations of a service, from botocore's model of it."""
    return frozenset(Loader().load_service_model(service, "service-2")["operations"])


def test_every_type_that_a_stack_declares_has_actions() -> None:
    declared_types = {
        resource.type
        for graph in (plain_stack(), all_features_stack(), existing_vpc_stack())
        for resource in graph.resources_of("aws")
    }

    assert declared_types == set(ACTIONS), "the guide would list too few permissions, or too many"


ALL_TASKS = {action for actions in TASKS.values() for action in actions}


ACTIONS_WITH_OPERATION = sorted(
    action
    for action in {*all_actions(), *ALL_TASKS, *UNSCOPED} - ACTIONS_WITHOUT_OPERATION
    if action.partition(":")[0] not in SERVICES_WITH_OTHER_NAMES
)


@pytest.mark.parametrize("action", ACTIONS_WITH_OPERATION)
def test_an_action_is_an_operation_of_its_service(action: str) -> None:
    service, _, name = action.partition(":")

    assert name in operations(SERVICES[service])


def test_each_type_with_a_tag_action_has_the_untag_action() -> None:
    for token, actions in ACTIONS.items():
        for action in actions:
            service, _, name = action.partition(":")
            if name.startswith("Tag"):
                assert f"{service}:Un{name[0].lower()}{name[1:]}" in actions, token


TYPE = re.compile(r"aws:(?P<module>\w+)/\w+:(?P<name>\w+)")
TAGGING = re.compile(r"\w+:(Tag|CreateTags|Put\w+Tagging)")
WITHOUT_DEFAULT_TAGS = {"aws:s3/bucketObjectv2:BucketObjectv2"}
"""Types whose resources override the default tags of the provider: an S3 object has ten tags at most."""


def is_taggable(token: str) -> bool:
    """Return True if the provider puts its default tags on resources of a type."""
    match = TYPE.fullmatch(token)
    assert match, token
    kind = getattr(importlib.import_module(f"pulumi_aws.{match['module']}"), match["name"])
    return "tags_all" in vars(kind) and token not in WITHOUT_DEFAULT_TAGS


@pytest.mark.parametrize("token", [token for token in ACTIONS if is_taggable(token)])
def test_each_type_with_default_tags_has_a_tag_action(token: str) -> None:
    assert any(TAGGING.match(action) for action in actions_of(token)), (
        "AWS would refuse the creation, since the provider's tags are part of it"
    )


def test_the_guide_lists_the_tag_actions_of_the_budget() -> None:
    row = next(
        line
        for line in (PACKAGES / "docs/eks.md").read_text().splitlines()
        if line.startswith("| `budgets:Budget`")
    )

    for action in ("TagResource", "ListTagsForResource", "UntagResource"):
        assert f"`budgets:{action}`" in row


COMMANDS = sorted(
    {task for tasks in (TASKS, azure_actions.TASKS) for task in tasks if "`everstep" in task}
)
CLI_PAGE = Path(__file__).parents[4] / "docs" / "cli.md"


@pytest.mark.parametrize("task", COMMANDS)
def test_a_task_names_a_command_and_options_that_exist(task: str) -> None:
    command = task.split("`")[1]
    name, *options = command.split(" --")
    section = CLI_PAGE.read_text(encoding="utf-8").partition(f"# {name}\n")[2].partition("\n###")[0]

    assert f"{name} [OPTIONS]" in section, "the guide would name a command that does not exist"
    assert [option for option in options if f"`--{option}" not in section] == []
    assert " with " not in task, "an option is part of the command"


def test_each_request_of_the_doctor_is_in_the_guide() -> None:
    requests = {
        f"{service.replace('-', '')}:{operation}"
        for service, operation in REQUEST.findall(inspect.getsource(aws_account))
    }

    assert requests == set(DOCTOR)


def test_the_guide_lists_the_actions() -> None:
    page = (PACKAGES / "docs/eks.md").read_text()

    assert with_table(page) == page, "`make docs` writes the table"
