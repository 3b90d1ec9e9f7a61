"""The tests run every command of docs/eks.md and docs/aks.md, and the options of the commands exist."""

import re
from itertools import takewhile

import pytest
from botocore import xform_name
from botocore.session import Session

from tests.guides.cloud_programs import PROGRAMS as CLOUD_PROGRAMS
from tests.guides.cloud_programs import SUPPORTED
from tests.guides.guide import (
    GUIDES,
    OFFLINE_SECTION,
    TESTED_SECTIONS,
    GuideCommand,
    blocks,
    commands_of,
    guide_commands,
)
from tests.guides.words import options_of, unknown_words, words_of

PROGRAMS = frozenset({"everstep", "pulumi", "aws", "az", "kubelogin"})
SHELL = frozenset({"cd", "export", "for", "make", "."})
SKIPPABLE_PROGRAMS = frozenset({"make", ".", "for", "az", "aws"})
"""Programs whose commands may be skipped on the twin."""

PHASES = (
    "everstep init",
    "pulumi login",
    "pulumi stack init",
    "pulumi preview",
    "EVERSTEP_PART=registry pulumi up",
    "everstep images push",
    "pulumi up",
    "everstep follow",
    "everstep node reclaim",
    "pulumi config set --stack STACK --path everstep:cluster.kubernetesVersion",
    "pulumi preview --stack STACK --policy-pack ../policy --diff",
    "pulumi up",
    "pulumi destroy",
)
"""Beginnings of commands that every stack has, in this order."""

AWS_CLI_ONLY: dict[tuple[str, str], frozenset[str]] = {
    ("eks", "update-kubeconfig"): frozenset({"--name", "--region"}),
    ("ecr", "get-login-password"): frozenset({"--region"}),
    ("sso", "login"): frozenset(),
}
"""AWS CLI commands that are not operations of a service, with the options that the guides use."""

AZURE: dict[str, frozenset[str]] = {
    "login": frozenset(),
    "account set": frozenset({"--subscription"}),
    "account show": frozenset(),
    "provider register": frozenset({"--namespace", "--wait", "--subscription"}),
    "provider show": frozenset({"--namespace", "--query"}),
    "aks command invoke": frozenset(),
    "aks get-credentials": frozenset({"--resource-group", "--name", "--file"}),
    "aks install-cli": frozenset(),
    "aks update": frozenset({"--name", "--resource-group", "--disable-http-proxy"}),
    "aks nodepool snapshot create": frozenset(),
    "vmss simulate-eviction": frozenset({"--resource-group", "--name", "--instance-id"}),
    "vm list-usage": frozenset({"--location", "--query"}),
    "acr login": frozenset({"--name", "--expose-token", "--query", "--output"}),
    "group delete": frozenset({"--name"}),
    "monitor log-analytics workspace delete": frozenset(
        {"--resource-group", "--workspace-name", "--force", "--yes"}
    ),
    "monitor log-analytics workspace recover": frozenset({"--resource-group", "--workspace-name"}),
    "role assignment list": frozenset({"--all", "--query"}),
}
"""Commands of `az` with their options. Source: Azure CLI reference, 2026-11-22."""

INLINE_COMMAND = re.compile(r"(?:everstep|aws|az) [a-z]")
STACKS = [(guide, f"{guide}-{kind}") for guide in GUIDES for kind in ("dev", "prod")]


def every_command(guide: str) -> list[GuideCommand]:
    """Return the commands of all blocks of a guide."""
    page = GUIDES[guide].read_text()
    return [command for section, block in blocks(page) for command in commands_of(section, block)]


def variants(guide: str) -> list[str]:
    """Return every command of a guide, including commands for the twin and commands within tables and sentences."""
    inline_texts = re.findall(r"`([^`\n]+)`", GUIDES[guide].read_text())
    inline_parts = [part.strip() for text in inline_texts for part in re.split(r";|\|\s|&&", text)]
    texts = [
        text for command in every_command(guide) for text in (command.text, command.twin_command)
    ]
    parts = [part.strip() for text in texts for part in re.split(r"&&| \| ", text)]
    return [*parts, *(part for part in inline_parts if INLINE_COMMAND.match(part))]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_is_in_a_section_that_tests_run(guide: str) -> None:
    sections = {section for section, _ in blocks(GUIDES[guide].read_text())}

    assert sections == {OFFLINE_SECTION, *TESTED_SECTIONS}, (
        "a block in another section would be skipped without notice"
    )


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_runs_a_known_program(guide: str) -> None:
    for command in every_command(guide):
        program = next(argument for argument in command.text.split() if "=" not in argument)
        assert program in PROGRAMS | SHELL, command
        assert not command.skip_reason or program in SKIPPABLE_PROGRAMS, (
            f"{command.text}: only a command without a counterpart on the twin may be skipped"
        )
        if program in CLOUD_PROGRAMS and command.text_on_twin == command.text:
            prefix = tuple(command.text.split()[: 2 if program == "kubelogin" else 3])
            assert prefix in SUPPORTED, (
                f"{command.text}: the twin has no counterpart; add the comment `# twin: COMMAND`"
            )


@pytest.mark.parametrize(("guide", "stack"), STACKS)
def test_the_commands_of_a_stack_include_every_phase_in_order(guide: str, stack: str) -> None:
    commands = [command.text_on_twin for command in guide_commands(guide, stack)]

    position = 0
    for phase in PHASES:
        expected = phase.replace("STACK", stack)
        matches = [command.startswith(expected) for command in commands[position:]]
        assert any(matches), f"{stack}: no {expected} where expected"
        position += matches.index(True) + 1


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_and_option_of_everstep_exists(guide: str) -> None:
    commands = [text for text in variants(guide) if words_of(text, "everstep")]

    assert len(commands) >= 15, "the guide has commands of everstep"
    assert {text: unknown for text in commands if (unknown := unknown_words(text))} == {}


def test_every_operation_and_option_of_the_aws_cli_exists() -> None:
    session = Session()
    commands = [text for text in variants("eks") if words_of(text, "aws")]

    assert len(commands) >= 10, "the guide has commands of the AWS CLI"
    for text in commands:
        service, operation, *remaining = words_of(text, "aws")
        if (service, operation) in AWS_CLI_ONLY:
            assert options_of(remaining) <= AWS_CLI_ONLY[service, operation], text
            continue
        model = session.get_service_model(service)
        operations = {xform_name(name, "-"): name for name in model.operation_names}
        assert operation in operations, f"{text}: {service} has no {operation}"
        shape = model.operation_model(operations[operation]).input_shape
        members = {f"--{xform_name(name, '-')}" for name in (shape.members if shape else ())}
        assert options_of(remaining) <= {*members, "--query", "--output", "--region"}, text


def test_every_command_and_option_of_the_azure_cli_is_in_its_reference() -> None:
    used_commands = set()
    for text in variants("aks"):
        if arguments := words_of(text, "az"):
            command = " ".join(takewhile(lambda word: not word.startswith("-"), arguments))
            assert command in AZURE, text
            assert options_of(arguments) <= AZURE[command], text
            used_commands.add(command)

    assert used_commands == set(AZURE), "the table has only commands of the guide"


def test_only_the_guide_of_a_cloud_has_commands_of_its_cli() -> None:
    assert [text for text in variants("eks") if words_of(text, "az")] == []
    assert [text for text in variants("aks") if words_of(text, "aws")] == []


def test_a_comment_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown comment"):
        commands_of("Steps", "pulumi up\n# on the twin: nothing\n")
