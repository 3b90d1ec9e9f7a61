"""The deliberate mistakes: what a hurried reviewer would wave through."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One change of one line.

    Attributes:
        what: the mistake, as one would admit it.
        file: where, from the root of the tree.
        old: what stands there; exactly once.
        new: what is put in its place.
    """

    what: str
    file: str
    old: str
    new: str

    def made_in(self, source: str) -> str:
        """Return the file with the mistake.

        Raises:
            ValueError: the file no longer has the line, or has it more than once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has {self.old!r} {source.count(self.old)} times, not once: "
                f"mend the mistake {self.what!r} in tests/mutation/mistakes.py"
            )
        return source.replace(self.old, self.new)


MISTAKES: tuple[Mistake, ...] = ()
