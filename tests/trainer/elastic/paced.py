"""The trainer with a pause in each step, for nodes that train while a test waits for an event."""

import time

from everstep.elastic import Batch
from trainer import train
from trainer.classifier import Classifier

PAUSE_SECONDS = 1.0
_train = Classifier.train


def _train_after_pause(self: Classifier, batch: Batch) -> None:
    if not batch.is_warm_up:
        time.sleep(PAUSE_SECONDS)
    _train(self, batch)


if __name__ == "__main__":
    Classifier.train = _train_after_pause  # type: ignore[method-assign]
    train.main()
