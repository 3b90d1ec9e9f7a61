"""`everstep doctor --stack`: the checks of a stack's cloud account and of its cluster, as tables or JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from everstep.cli.account.checks import AccountCheck
from everstep.cli.account.limits import limit_checks
from everstep.cli.account.prometheus import operator_checks
from everstep.cli.check_table import check_table
from everstep.cli.console import results
from everstep.cli.errors import FAILED
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig
    from everstep.cli.engine.context import StackContext


def run(stack: str, *, as_json: bool) -> None:
    """Check the account, the cluster and the limits of a stack, and print the results.

    Args:
        stack: name of the stack.
        as_json: whether to print JSON.

    Raises:
        EverstepError: the stack has no account to check and sets no requirement for its cluster, or the SDK of its
            cloud is not installed.
        Exit: with 1 if a check would stop `pulumi up`.
    """
    from everstep.cli.engine.context import open_stack
    from everstep.cli.engine.stack_file import read_stack_file

    context = open_stack(stack)
    secrets_provider = str(
        read_stack_file(context.workspace.stack_file).get("secretsprovider") or ""
    )
    checks = [
        *stack_checks(context, context.platform_stack, secrets_provider),
        *limit_checks(context.config, stack),
    ]
    if as_json:
        value = {"stack": stack, "checks": [asdict(check) for check in checks]}
        results.print(json.dumps(value, indent=2), markup=False)
    else:
        results.print(screen(checks))
    if any(check.fatal and not check.passed for check in checks):
        raise typer.Exit(FAILED)


def stack_checks(context: "StackContext", stack: str, secrets_provider: str) -> list[AccountCheck]:
    """Return the checks of the stack's account and of its cluster; an existing cluster has no account.

    Raises:
        EverstepError: the stack has no account to check, and sets no requirement for its cluster.
    """
    cluster = list(operator_checks(context))
    if cluster and context.config.cluster.kind == "existing":
        return cluster
    return [*account_checks(context.config, stack, secrets_provider), *cluster]


def account_checks(
    config: "StackConfig", stack: str, secrets_provider: str = ""
) -> list[AccountCheck]:
    """Return the results of all checks of the stack's account.

    Args:
        config: the configuration of the stack.
        stack: name of the stack that declares the cluster.
        secrets_provider: URL of the stack's secrets provider; empty if it has none.

    Raises:
        EverstepError: the stack has no cloud account that can be checked, or the SDK of its cloud is not installed.
    """
    if config.cluster.kind == "eks":
        from everstep.cli.account import aws

        return list(aws.checks(config, stack, secrets_provider))
    if config.cluster.kind == "aks":
        from everstep.cli.account import azure

        return list(azure.checks(config, stack, secrets_provider))
    raise EverstepError(
        f"the stack {stack} has no account that can be checked: cluster.kind is {config.cluster.kind}",
        "`everstep doctor` without --stack checks this machine.",
    )


def screen(checks: Sequence[AccountCheck]) -> RenderableType:
    """Return the checks as a table for a terminal, and a summary."""
    return Group(check_table(checks, 18, _fix), Text(), _summary(checks))


def _fix(check: AccountCheck) -> str:
    """Return the key of the stack file and the fix for a check that did not pass."""
    if check.passed:
        return ""
    key = f"everstep:{check.field}: " if check.field else ""
    return f"{key}{check.fix}"


def _summary(checks: Sequence[AccountCheck]) -> Text:
    fatal = sum(check.fatal and not check.passed for check in checks)
    warnings = sum(not check.fatal and not check.passed for check in checks)
    if fatal:
        return Text(f"✗ {fatal} of {len(checks)} checks would stop `pulumi up`", style="red")
    if warnings:
        return Text(f"! {warnings} of {len(checks)} checks need attention", style="yellow")
    return Text(f"✓ all {len(checks)} checks passed", style="green")
