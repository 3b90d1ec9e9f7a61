"""The only kind of error that users see.

All of Everstep raises an `EverstepError`, or a subclass of it, for what a user can fix; the command
line prints it and exits with status 1. Any other exception that escapes is a bug in Everstep.
"""


class EverstepError(Exception):
    """An error that a user can fix.

    Attributes:
        problem: the problem and its location, one sentence that contains the offending value.
        fix: the action that corrects it; may span lines; empty if there is none.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.problem}\n{self.fix}" if self.fix else self.problem
