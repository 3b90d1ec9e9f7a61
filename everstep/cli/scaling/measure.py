"""Measurement of the missing sizes of a study."""

from collections.abc import Sequence
from typing import Protocol

from everstep.cli.console import say
from everstep.cli.scaling.store import Store
from everstep.cli.scaling.study import SizeResult
from everstep.progress import Progress


class Study(Protocol):
    """A study that can measure any size."""

    def check(self) -> None:
        """Check that nothing prevents a measurement.

        Raises:
            EverstepError: a measurement is not possible.
        """

    def measure(self, replicas: int, progress: Progress) -> SizeResult:
        """Train with this number of replicas and return their speed.

        Raises:
            EverstepError: the training failed, or its record does not suffice for a result.
        """


def measure(
    study: Study, numbers: Sequence[int], store: Store, progress: Progress, *, remeasure: bool
) -> list[SizeResult]:
    """Return the results of all sizes; measure the missing ones, and store each immediately.

    Args:
        study: study to measure with.
        numbers: numbers of replicas.
        store: store of the measured sizes.
        progress: receiver of the progress.
        remeasure: True to measure sizes again that the store has.
    """
    missing = [number for number in numbers if remeasure or store.get(number) is None]
    if missing:
        study.check()
    for number in numbers:
        if number in missing:
            store.add(study.measure(number, progress))
        else:
            say(f"   {number}: measured already, in {store.path}; --again measures it again")
    return [result for number in numbers if (result := store.get(number))]
