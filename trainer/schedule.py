"""The learning rate at a step: a linear warm-up, then half a cosine down to zero."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A pure function of the step, so that a checkpoint needs no part of it.

    Attributes:
        peak: the highest rate.
        total_steps: after these the rate is zero.
        warmup_fraction: share of the steps in which the rate rises.
    """

    peak: float
    total_steps: int
    warmup_fraction: float = 0.15

    def rate(self, step: int) -> float:
        """Return the rate for the step that follows `step` completed ones."""
        warmup = max(1, round(self.total_steps * self.warmup_fraction))
        if step < warmup:
            return self.peak * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.total_steps - warmup)
        return self.peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
