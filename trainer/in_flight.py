"""What this worker has computed of the step whose sum has not arrived yet."""

from dataclasses import dataclass

from everstep.elastic.ledger import digest
from everstep.elastic.leftover import Span, merged
from everstep.elastic.sampler import Ids


@dataclass(frozen=True)
class InFlight:
    """Of one step; its gradients are the exchange's to keep. Units are samples, or shards in mode `exact`.

    Attributes:
        mine: the units that this worker has computed.
        group: those that all workers together had computed when this group began.
        loss: this worker's part of the mean loss over the global batch; in `exact` a whole number.
        unsound: shards whose loss or gradient is of no use.
        samples: that were really read.
        digest: of those, for the ledger.
    """

    mine: tuple[Span, ...] = ()
    group: tuple[Span, ...] = ()
    loss: float = 0
    unsound: int = 0
    samples: int = 0
    digest: int = 0

    def plus(
        self, spans: tuple[Span, ...], loss: float, ids: Ids, step: int, *, unsound: bool = False
    ) -> "InFlight":
        """These units have been computed, too."""
        return InFlight(
            mine=merged([*self.mine, *spans]),
            group=self.group,
            loss=self.loss + loss,
            unsound=self.unsound + unsound,
            samples=self.samples + len(ids),
            digest=(self.digest + digest(step, ids)) % 2**64,
        )
