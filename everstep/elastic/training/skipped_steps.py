"""Steps whose update is skipped: why, how many consecutive ones, and the error that ends the run. Pure.

Every decision is a function of the step's sums and of the state, which are equal on all workers of a group.
"""

import math
from enum import StrEnum

from everstep.errors import EverstepError

MAX_SKIPPED_STEPS = 10  # consecutive steps: `skip` is for rare steps, not for a diverged model
MAX_OVERFLOWED_STEPS = 20
"""Maximum number of consecutive steps: by then torch's first scale, 2^16, has been halved to below 1."""


class SkipReason(StrEnum):
    """Reason to skip the update of a step, as the kind of its journal line."""

    NON_FINITE = "nonfinite_step"  # the loss or a gradient is not finite
    OVERFLOW = "overflowed_step"  # only the scaled gradients are not finite


def reason_to_skip(loss: float, *, finite: bool, scaled: bool) -> SkipReason | None:
    """Return why the update of a step must be skipped; None if it can be applied.

    Args:
        loss: mean loss over the global batch.
        finite: whether the loss and all summed gradients are finite.
        scaled: whether the losses were multiplied by the scale of a gradient scaler.
    """
    if finite:
        return None
    return SkipReason.OVERFLOW if scaled and math.isfinite(loss) else SkipReason.NON_FINITE


def max_skipped_steps(reason: SkipReason, nonfinite_loss: str) -> int:
    """Return how many consecutive steps may be skipped; another one ends the run.

    Args:
        reason: reason to skip the newest of these steps.
        nonfinite_loss: the option of this name: `stop` or `skip`.
    """
    if reason is SkipReason.OVERFLOW:
        return MAX_OVERFLOWED_STEPS
    return MAX_SKIPPED_STEPS if nonfinite_loss == "skip" else 0


def divergence_error(
    reason: SkipReason, step: int, loss: float, skipped_steps: int, *, exact: bool
) -> EverstepError:
    """Return the error that ends a run whose steps cannot be applied.

    Args:
        reason: reason to skip the step.
        step: number of the step, from 1.
        loss: mean loss over its global batch.
        skipped_steps: number of consecutive skipped steps, including this one.
        exact: whether the mode is `exact`.
    """
    fix = (
        "Lower the learning rate, or raise the share of warm-up steps (in our trainer: --learning-rate, "
        "--warmup-fraction); the checkpoints before this step are valid."
    )
    if reason is SkipReason.OVERFLOW:
        return EverstepError(
            f"the scaled gradients were not finite in {skipped_steps} consecutive steps, up to step {step}, "
            "although the gradient scaler has lowered its scale each time: training has diverged",
            f"{fix} Or train in bfloat16 or float32, without a scaler.",
        )
    if exact:
        fix += " Or raise the shard size: over a few small samples a normalization divides by a variance near 0."
    cause = (
        f"the gradients of step {step} are not finite, although its loss is {loss:g}"
        if math.isfinite(loss)
        else f"the loss of step {step} is {loss}"
        + (", or one of its gradients is not finite or too large" if exact else "")
    )
    if skipped_steps > 1:
        cause += f", after {skipped_steps - 1} consecutive steps were skipped"
    return EverstepError(f"{cause}: training has diverged", fix)
