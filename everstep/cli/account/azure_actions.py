"""The list of Azure RBAC actions in docs/aks.md (`python -m everstep.cli.account.azure_actions` writes it).

`everstep doctor` compares them with the actions and notActions of the caller's roles.
"""

from cloudfacts.azure_actions import ALWAYS, KINDS, TASKS, actions_of

from everstep.cli.account import action_table
from everstep.resources import PACKAGES


def with_table(page: str) -> str:
    """Return a page with the current table between its two markers."""
    kinds = ((token.removeprefix("azure-native:"), actions_of(token)) for token in sorted(KINDS))
    rows = [
        ("the provider", ALWAYS),
        *((f"`{kind}`", actions) for kind, actions in kinds),
        *TASKS.items(),
    ]
    return action_table.with_table(page, action_table.as_table(rows))


if __name__ == "__main__":
    path = PACKAGES / "docs/aks.md"
    path.write_text(with_table(path.read_text()))
