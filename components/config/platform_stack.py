"""A job on the platform of another stack: its cluster, volume, etcd and controller."""

from typing import Annotated

from pydantic import Field

from components.config.section import Section, matches_pattern

MIN_PRIORITY = (
    -9
)  # above the priority of placeholders, the lowest for which the cluster autoscaler adds nodes
MAX_PRIORITY = 999_999  # lower than the priority of the platform's own pods

StackName = Annotated[
    str,
    matches_pattern(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
        "a name of a stack: letters, digits, dashes, dots and underscores",
        "eks-dev",
        max_length=100,
    ),
]


class PlatformStackConfig(Section):
    """The stack on whose platform the job runs; this stack then declares the job only."""

    name: StackName = Field(description="Name of that stack, in the same project and backend.")
    priority: int = Field(
        default=0,
        ge=MIN_PRIORITY,
        le=MAX_PRIORITY,
        description="Priority of the workers. The job of the platform's own stack has 0; above 0, workers "
        "preempt workers of a lower priority when machines are scarce.",
    )
