"""Graphs of complete stacks: the environment of a cloud, and the training job in it."""

from collections.abc import Callable
from typing import Any

from components.config import StackConfig
from components.interface import Environment
from components.stack import TrainingStack, TrainingStackArgs
from tests.components.recorder import Graph, record


def record_training(config: StackConfig, environment_of: Callable[[], Environment]) -> Graph:
    """Declare all resources of a stack, including its training job, and return their graph.

    Args:
        config: configuration of the stack.
        environment_of: function that declares the resources of the cloud.
    """

    def program() -> dict[str, Any]:
        environment = environment_of()
        args = TrainingStackArgs(
            config=config,
            cluster=environment.cluster,
            volume=environment.volume,
            data_access=environment.data_access,
        )
        return dict(TrainingStack("training", args).outputs)

    return record(program)
