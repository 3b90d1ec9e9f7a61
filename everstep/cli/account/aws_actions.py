"""The list of IAM actions in docs/eks.md (`python -m everstep.cli.account.aws_actions` writes it).

`everstep doctor` simulates these actions, and the twin refuses actions that no policy allows.
"""

from cloudfacts.aws_actions import ACTIONS, ALWAYS, TASKS, actions_of

from everstep.cli.account import action_table
from everstep.resources import PACKAGES


def with_table(page: str) -> str:
    """Return a page with the current table between its two markers."""
    return action_table.with_table(
        page,
        action_table.as_table(
            [
                ("the provider", ALWAYS),
                *((f"`{_kind(token)}`", actions_of(token)) for token in sorted(ACTIONS)),
                *TASKS.items(),
            ]
        ),
    )


def _kind(token: str) -> str:
    """Return the name of a type for the user, such as `ec2:Eip`."""
    return token.removeprefix("aws:").partition("/")[0] + ":" + token.rpartition(":")[2]


if __name__ == "__main__":
    path = PACKAGES / "docs/eks.md"
    path.write_text(with_table(path.read_text()))
