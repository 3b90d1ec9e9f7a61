"""The learning rate at a step: a linear warm-up, then half a cosine down to zero."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Learning rate as a pure function of the step, so that checkpoints do not contain it.

    Attributes:
        peak: highest rate.
        total_steps: number of steps, after which the rate is zero.
        warmup_fraction: share of the steps in which the rate rises.
    """

    peak: float
    total_steps: int
    warmup_fraction: float = 0.15

    def rate(self, step: int) -> float:
        """Return the rate for the step that follows `step` completed steps."""
        warmup_steps = max(1, round(self.total_steps * self.warmup_fraction))
        if step < warmup_steps:
            return self.peak * (step + 1) / warmup_steps
        progress = (step - warmup_steps) / max(1, self.total_steps - warmup_steps)
        return self.peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
