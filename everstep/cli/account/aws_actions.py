"""The list of IAM actions in docs/eks.md (`python -m everstep.cli.account.aws_actions` writes it).

`everstep doctor` simulates these actions, and the twin refuses what a policy does not allow.
"""

from cloudfacts.aws_actions import ACTIONS, ALWAYS, actions_of

from everstep.resources import PACKAGES

BEGIN, END = "<!-- actions: begin -->", "<!-- actions: end -->"


def as_table() -> str:
    """Return the actions by type of resource as a Markdown table."""
    rows = [f"| the provider | `{'`, `'.join(ALWAYS)}` |"]
    for token in sorted(ACTIONS):
        kind = token.removeprefix("aws:").partition("/")[0] + ":" + token.rpartition(":")[2]
        rows.append(f"| `{kind}` | `{'`, `'.join(actions_of(token))}` |")
    return "\n".join(["| to create | needs |", "| --- | --- |", *rows])


def with_table(page: str) -> str:
    """Return a page with the current table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{as_table()}\n{END}{after}"


if __name__ == "__main__":
    path = PACKAGES / "docs/eks.md"
    path.write_text(with_table(path.read_text()))
