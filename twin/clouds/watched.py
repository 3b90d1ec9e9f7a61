"""Inputs that notice when somebody looks at a value that is not known yet. Pure.

At preview some inputs are unknown. A rule that looks at one cannot tell, so its verdict does not
count; a rule that looks at others can, and should speak at preview and not only in the update. The
alternative, each rule minding unknowns at every step, was forgotten in one rule of three.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from twin.pulumi.provider.convert import Plain, Unknown


class Watch:
    """Whether an unknown was looked at."""

    def __init__(self) -> None:
        self.met_unknown = False

    def over(self, value: Plain) -> Plain:
        """Return a value, its members watched."""
        if isinstance(value, Unknown):
            self.met_unknown = True
            return None
        if isinstance(value, Mapping):
            return _Object(value, self)
        return _List(value, self) if isinstance(value, list) else value


class _Object(Mapping[str, Any]):
    def __init__(self, values: Mapping[str, Any], watch: Watch) -> None:
        self._values, self._watch = values, watch

    def __getitem__(self, key: str) -> Plain:
        return self._watch.over(self._values[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self._values))


class _List(list[Any]):
    def __init__(self, values: list[Any], watch: Watch) -> None:
        super().__init__(values)
        self._watch = watch

    def __iter__(self) -> Iterator[Any]:
        return (self._watch.over(each) for each in super().__iter__())

    def __getitem__(self, at: Any) -> Plain:  # noqa: ANN401  a position or a slice, as list has it
        return self._watch.over(super().__getitem__(at))
