"""The one kind of error that a user is meant to read.

Every part of Everstep raises an `EverstepError`, or a subclass of it, for what a user can put right; the
command line prints it and exits with 1. Anything else that escapes is a fault of ours and says so.
"""


class EverstepError(Exception):
    """Something a user can put right.

    Attributes:
        what: what was wrong and where, one sentence, with the offending value in it.
        remedy: what to do about it; may span lines; empty where there is nothing to do.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}" if self.remedy else self.what
