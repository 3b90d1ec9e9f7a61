"""The error that a user can fix.

Everstep raises an `EverstepError`, or a subclass of it, for a problem that a user can fix. The twin, which is a
separate distribution, has its own `TwinError`. The command line prints both and exits with status 1. Any other
exception is a bug, except for errors of the operating system such as a full disk.
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
