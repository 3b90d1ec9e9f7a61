"""`everstep up`: brings a stack up and follows its training."""

from collections.abc import Sequence
from typing import Annotated

import typer

from everstep.cli.commands.follow import follow_to_end
from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, PolicyPacks, Stack, Yes
from everstep.cli.confirmation import confirm_change
from everstep.cli.console import progress, results, say
from everstep.cli.engine import cloud_twin, partial_update
from everstep.cli.engine.context import StackContext, open_stack_to_deploy
from everstep.cli.engine.lifecycle import bring_up, bring_up_part, check_machine
from everstep.cli.engine.stack_folder import locked_stack
from everstep.cli.engine.target import Target
from everstep.errors import EverstepError

Drill = Annotated[
    bool,
    typer.Option("--drill/--no-drill", help="Drain one node and kill another without notice."),
]


def up(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    drill: Drill = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the stack is up; do not follow.")
    ] = False,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="PART",
            help="Only a part of the stack: registry, to which images are pushed before the rest.",
        ),
    ] = "",
    policy_pack: PolicyPacks = [],  # noqa: B006  typer copies it
    yes: Yes = False,
) -> None:
    """Bring the stack up, start the training and follow it to its end."""
    if target:
        partial_update.check_part(target)
    _check_combination(target, drill=drill, detach=detach, policy_packs=policy_pack)
    context = open_stack_to_deploy(stack, twin=twin)
    _check_drill(context, drill=drill)
    check_machine(context)
    _confirm(context, yes=yes)
    if context.target is Target.TWIN_CLOUD:
        cloud_twin.show_banner(context)
    fix = "Wait for it; `everstep follow` shows the training, `everstep status` the cluster."
    keeps_state = context.target is not Target.CLOUD
    with locked_stack(context.workspace, "`everstep up`", fix, record_project=keeps_state):
        if target:
            registry = bring_up_part(context, target, progress())
            say(f"Push the images next: everstep images push{_options(context)}")
            results.print(registry, markup=False)
            return
        bring_up(context, progress(), policy_pack)
        say(f"   stack {stack} is up; the job {context.job} is starting\n")
        if detach:
            options = _options(context)
            say(
                f"`everstep follow{options}` shows the training, `everstep down{options}` removes "
                "everything."
            )
        elif drill:
            follow_to_end(context, drill=True)
    if not detach and not drill:
        follow_to_end(context)


def _check_combination(
    target: str, *, drill: bool, detach: bool, policy_packs: Sequence[str]
) -> None:
    """Raise an error for options that cannot be combined."""
    if drill and detach:
        raise EverstepError(
            "--drill needs the training to be followed, but --detach does not follow it",
            "Omit one of them.",
        )
    if target and drill:
        raise EverstepError(
            f"--drill disrupts the training, but --target {target} starts none", "Omit one of them."
        )
    if target and policy_packs:
        raise EverstepError(
            f"--policy-pack checks a whole stack, but --target {target} declares only a part",
            "Omit --policy-pack here: `everstep preview --policy-pack DIR` checks the stack first.",
        )


def _check_drill(context: StackContext, *, drill: bool) -> None:
    """Raise an error for a drill on machines that are not the twin's own."""
    if not drill or context.target is Target.TWIN:
        return
    raise EverstepError(
        f"--drill drains one of the twin's own machines and kills another; this stack runs on {context.target}",
        "There, `everstep node reclaim NODE` reclaims a machine as a spot market does."
        if context.on_twin
        else "Omit it.",
    )


def _options(context: StackContext) -> str:
    """Return the options that select the same stack in another command."""
    workspace = context.workspace
    stack = "" if workspace.stack == DEFAULT_STACK else f" --stack {workspace.stack}"
    return f"{stack} --twin" if context.target is Target.TWIN_CLOUD else stack


def _confirm(context: StackContext, *, yes: bool) -> None:
    """Ask for confirmation before something outside the twin is changed."""
    if context.on_twin:
        return
    cluster = context.config.cluster
    cluster_name = (
        (cluster.kubeconfig or cluster.context) if cluster.kind == "existing" else cluster.name
    )
    effect = f"This changes {context.target}: {cluster_name}."
    if context.target is Target.CLOUD:
        effect += " Its resources there cost money."
    confirm_change(effect, yes=yes)
