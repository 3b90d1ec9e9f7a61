"""The error type whose message is written for users of the twin."""


class TwinError(Exception):
    """A problem that the user can fix.

    Attributes:
        what: one sentence: the problem, where it occurred and the offending value.
        fix: instructions for the user; may span lines; empty if nothing can be done.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n{self.fix}" if self.fix else self.what
