"""The error type whose message is written for users of the twin."""


class TwinError(Exception):
    """A problem, and how the user can fix it.

    Attributes:
        problem: one sentence: the problem, where it occurred and the offending value.
        fix: instructions for the user; may span lines; empty if nothing can be done.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.problem}\n{self.fix}" if self.fix else self.problem
