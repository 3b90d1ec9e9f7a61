"""The image's entry point: `everstep launch` with the trainer's additions.

It takes the flags that ElasticJob controllers inject and torchrun's own:

    python3 -m trainer.launch --rdzv_backend=etcd --rdzv_endpoint=HOST:PORT --rdzv_id=JOB \
        --nnodes=MIN:MAX --nproc_per_node=1 -m trainer.train --model resnet18 ...

Workers are forked from a process that has imported the trainer already, and a run that has its result
is not started again.
"""

import contextlib
import math
import sys

from everstep.elastic.launch.launcher import launch
from everstep.elastic.launch.options import LaunchOptions
from everstep.errors import EverstepError
from trainer.settings import Settings, parse, result

TRAINING_MODULE = "trainer.train"
PRELOADED_MODULES = ("torchvision", "trainer.classifier")


def find_result(options: LaunchOptions) -> str | None:
    """Return the result of a run that was complete before this node joined, as text; None if it was not."""
    settings = settings_of(options)
    if settings and (metrics := result(settings)):
        accuracy = float(metrics.get("accuracy", math.nan))
        return f"{settings.run} holds its result, accuracy {accuracy:.4f}"
    return None


def settings_of(options: LaunchOptions) -> Settings | None:
    """Return the settings of `trainer.train`; None for another program or invalid settings."""
    if options.program == TRAINING_MODULE:
        with contextlib.suppress(EverstepError, SystemExit):
            return parse(list(options.arguments))
    return None


if __name__ == "__main__":
    launch(sys.argv[1:], preload=PRELOADED_MODULES, find_result=find_result)
