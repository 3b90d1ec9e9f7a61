"""The samples that a state was trained on, as two numbers that are part of the state.

At each step every worker adds the samples that it actually read, not the samples that the order assigns to
it: their number and a digest, the sum of a hash of (step, id). The digests are summed with the
gradients, and their total is added when the step is applied. Sums do not depend on which worker had
which sample, so the ledger of a state is the same for any number of workers and any history of the
group. A sample that was left out, used twice, or trained on in the wrong step changes the ledger. The
ledger is written with every checkpoint, and `trainer.verify` recomputes it.

Why not the list of IDs: an epoch of ImageNet would add ten megabytes to every checkpoint. A digest of
eight bytes shows any difference with an error probability of 2^-64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everstep.elastic.data_order.sampler import Ids, hash_ids

SEED = 0x1ED6E5  # hash seed of the digests, which must not correlate with the sample order
LIMB_BITS = 8
LIMBS = 64 // LIMB_BITS
"""A digest is summed byte by byte: sums over up to 65,000 workers are exact in float32."""


@dataclass(frozen=True)
class SampleLedger:
    """The number of samples that a state was trained on, and their digest modulo 2^64."""

    samples: int = 0
    digest: int = 0

    def with_step(self, samples: int, digest: int) -> "SampleLedger":
        """Return the ledger after one more step with these samples."""
        return SampleLedger(self.samples + samples, (self.digest + digest) % 2**64)


def digest(step: int, ids: Ids) -> int:
    """Return the digest of these samples in the step that follows `step` completed steps."""
    with np.errstate(over="ignore"):
        return int(hash_ids(SEED, step, ids).sum(dtype=np.uint64)) if len(ids) else 0


def to_limbs(number: int) -> list[float]:
    """Return a digest as small numbers whose sums over all workers are exact."""
    return [float(number >> LIMB_BITS * limb & (1 << LIMB_BITS) - 1) for limb in range(LIMBS)]


def from_limbs(sums: Sequence[float]) -> int:
    """Return the sum of all workers' digests, modulo 2^64, from the sums of their limbs."""
    return sum(round(total) << LIMB_BITS * limb for limb, total in enumerate(sums)) % 2**64
