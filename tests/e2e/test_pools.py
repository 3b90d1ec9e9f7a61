"""Stacks with two GPU pools, in two of three zones: all workers run in one zone, and in the other zone when it is lost.

    pytest -m e2e tests/e2e/test_pools.py -k eks-prod     # or aks-prod

One run of a stack takes minutes, so all its tests share it; each test checks one guarantee.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import yaml
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from everstep.catalog.names import GPU_POOL_LABEL, ZONE_LABEL
from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    NOTICE_SECONDS,
    QUERY_SECONDS,
    SHORT_TRAINING,
    STEPS_BETWEEN_CHECKPOINTS,
    UP_SECONDS,
    WORKERS,
    LifeCycle,
    copy_project,
    output,
)
from trainer.verify import LEDGER_FILE, read

WITHOUT_CAPACITY_SECONDS = 7200
"""Longer than the run: a zone that is lost stays without machines."""

LONG_TRAINING = {"job": {**SHORT_TRAINING["job"], "epochs": 50}}
"""The training outlasts the loss of a zone; `down` ends it."""

POOLS: dict[str, list[dict[str, Any]]] = {
    "eks-prod": [
        {"name": "a", "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"], "maxNodes": WORKERS},
        {"name": "b", "zone": "us-east-1b", "instanceTypes": ["g5.xlarge"], "maxNodes": WORKERS},
    ],
    "aks-prod": [
        {"name": "a", "zone": "1", "vmSize": "Standard_NC4as_T4_v3", "maxNodes": WORKERS},
        {"name": "b", "zone": "2", "vmSize": "Standard_NC4as_T4_v3", "maxNodes": WORKERS},
    ],
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * UP_SECONDS + 3 * ALL_TRAIN_SECONDS + 4 * QUERY_SECONDS + DOWN_SECONDS),
]


@dataclass(frozen=True)
class Group:
    """The workers of the job at one moment.

    Attributes:
        nodes: nodes of the workers.
        pools: pools of these nodes.
        zones: zones of these nodes.
    """

    nodes: frozenset[str]
    pools: frozenset[str]
    zones: frozenset[str]


@dataclass
class PoolsCycle(LifeCycle):
    """The life cycle of a stack with two pools.

    Attributes:
        groups: the group before and after the loss of its zone.
        steps: highest step before and after the loss.
    """

    groups: list[Group] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def declare_pools(self) -> None:
        """Declare two pools instead of one; the stack may be destroyed immediately."""
        content = yaml.safe_load(self.stack_file.read_text())
        cluster = content["config"]["everstep:cluster"]
        del cluster["gpuPool"]
        cluster["gpuPools"] = POOLS[self.stack]
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))
        self.unprotect()
        self.change(**LONG_TRAINING)

    def group(self) -> Group:
        """Return the nodes, pools and zones of the running workers."""
        nodes = self.worker_nodes()
        return Group(
            frozenset(nodes),
            frozenset(labels.get(GPU_POOL_LABEL, "") for labels in nodes.values()),
            frozenset(labels.get(ZONE_LABEL, "") for labels in nodes.values()),
        )

    def all_train_beyond(self, step: int) -> bool:
        """Return True if all workers train and have completed a later step."""
        report = self.progress()
        complete = report.steps > step and report.world_sizes[-1].world_size == WORKERS
        return complete and len(self.group().nodes) == WORKERS

    def lose_zone(self) -> None:
        """Reclaim all machines of the group; their zone has none for the rest of the run."""
        self.run_checked(
            "lose the zone", "node", "reclaim", *self.groups[0].nodes, "--stack", self.stack,
            f"--notice={NOTICE_SECONDS}", f"--return-after={WITHOUT_CAPACITY_SECONDS}",
        )  # fmt: skip

    def observe(self) -> None:
        """Wait until all workers train for more steps than before, and record their group."""
        min_step = max(self.steps, default=0) + STEPS_BETWEEN_CHECKPOINTS
        self.wait_until(
            "all workers train", partial(self.all_train_beyond, min_step), ALL_TRAIN_SECONDS
        )
        self.groups.append(self.group())
        self.steps.append(self.progress().steps)

    def committed_step(self) -> int:
        """Return the highest step of a committed checkpoint."""
        return max((commit.step for commit in read(self.run_folder / LEDGER_FILE)), default=0)

    def verify_move(self) -> None:
        """Recompute the samples of all checkpoints; at least one checkpoint is from the new zone."""
        self.wait_until(
            "a checkpoint follows the move",
            lambda: self.committed_step() > self.steps[-1],
            ALL_TRAIN_SECONDS,
        )
        self.verify()


@pytest.fixture(scope="module", params=sorted(POOLS))
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolsCycle]:
    """Run the life cycle once; the twin is always taken down."""
    folder = copy_project(tmp_path_factory.mktemp(f"pools-{request.param}"))
    cycle = PoolsCycle(request.param, folder)
    cycle.declare_pools()
    options = ("--stack", cycle.stack, "--twin")
    try:
        cycle.run_checked("preview", "preview", *options)
        cycle.run_checked("up", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.observe()
        cycle.lose_zone()
        cycle.observe()
        cycle.verify_move()
        cycle.record("again", "preview", "--expect-no-changes", *options)
        cycle.run_checked("down", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())
        shutil.rmtree(folder, ignore_errors=True)


def test_the_group_begins_in_the_zone_of_the_first_pool(cycle: PoolsCycle) -> None:
    first_group = cycle.groups[0]

    assert first_group.pools == {"a"}
    assert len(first_group.zones) == 1, "gradients would cross zones"


def test_the_group_continues_in_the_other_zone_when_its_own_has_no_machine(
    cycle: PoolsCycle,
) -> None:
    first_group, last_group = cycle.groups

    assert last_group.pools == {"b"}
    assert len(last_group.zones) == 1
    assert not last_group.zones & first_group.zones
    assert not last_group.nodes & first_group.nodes
    assert cycle.steps[1] > cycle.steps[0]


def test_each_sample_is_trained_exactly_once_across_the_move(cycle: PoolsCycle) -> None:
    assert cycle.results["verify"].returncode == 0, output(cycle, "verify")
    assert "every sample exactly once" in cycle.results["verify"].stdout


def test_a_preview_after_the_loss_of_a_zone_finds_no_changes(cycle: PoolsCycle) -> None:
    preview = cycle.results["again"]

    assert preview.returncode == 0, f"{preview.stdout[-3000:]}\n{preview.stderr[-3000:]}"


def test_down_leaves_nothing(cycle: PoolsCycle) -> None:
    # `down`, which succeeded, fails if the cloud still has resources.
    assert not cycle.twin.exists(), output(cycle, "down")
