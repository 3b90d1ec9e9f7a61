"""Which samples a state was trained on, as two numbers that travel with it.

At each step every worker adds what it has really read, and not what the plan says that it should
have: the number of its samples and a digest, the sum of a hash of (step, id) over them. The
digests ride on the step's exchange, and their total is added when the step is applied. Sums do not
depend on who had which sample, so the account of a state is the same for any number of workers and
any history of the group; a sample that was left out, taken twice, or trained in another step than
its own changes it. It is written with every checkpoint, and `trainer.verify` reckons it anew.

Why not the list of ids: an epoch of ImageNet is ten megabytes of them for every checkpoint, to say
what eight bytes say with a chance of 2^-64 to be wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everstep.elastic.sampler import Ids, hashed

SEED = 0x1ED6E5  # of the digests' own hash: they are not to follow the order's
LIMB_BITS = 8
LIMBS = 64 // LIMB_BITS
"""A digest is exchanged in bytes: sums of them over up to 65,000 workers are exact in float32."""


@dataclass(frozen=True)
class Account:
    """Of one state: how many samples made it, and their digest modulo 2^64."""

    samples: int = 0
    digest: int = 0

    def plus(self, samples: int, digest: int) -> "Account":
        """The account after one more step."""
        return Account(self.samples + samples, (self.digest + digest) % 2**64)

    def to_signed(self) -> tuple[int, int]:
        """As two 64-bit integers with a sign, which is what tensors hold."""
        return self.samples, self.digest - 2**64 * (self.digest >= 2**63)

    @staticmethod
    def from_signed(samples: int, digest: int) -> "Account":
        """Back from a tensor."""
        return Account(samples, digest % 2**64)


def digest(step: int, ids: Ids) -> int:
    """Of these samples in the step that follows `step` completed ones."""
    with np.errstate(over="ignore"):
        return int(hashed(SEED, step, ids).sum(dtype=np.uint64)) if len(ids) else 0


def to_limbs(number: int) -> list[float]:
    """A digest as small numbers whose sums over all workers are exact."""
    return [float(number >> LIMB_BITS * place & (1 << LIMB_BITS) - 1) for place in range(LIMBS)]


def from_limbs(sums: Sequence[float]) -> int:
    """The sum of all workers' digests, modulo 2^64, from the sums of their limbs."""
    return sum(round(total) << LIMB_BITS * place for place, total in enumerate(sums)) % 2**64
