"""The record of a training run, built step by step for tests of the screens and reports."""

import json
from dataclasses import dataclass, field, replace
from typing import Self

from everstep.cli.report.run_record import Move, RunRecord, assemble

STEP_SECONDS = 0.5
GLOBAL_BATCH = 256
SUMMED_BYTES, STATE_BYTES = 40_000_000, 80_000_000


@dataclass
class RecordedRun:
    """The files of a run, as its workers and the twin write them, on a simulated clock.

    Times are in seconds; methods that return the run can be chained.

    Attributes:
        nodes: names of the nodes on which the workers start, in the order of the workers' numbers.
        now: Unix time of the simulated clock.
        journals: worker -> entries of its journal.
        events: entries of the log of machine events.
        training_nodes: nodes of the current group, by rank.
        original_nodes: successor of a lost node -> node on which its worker started.
    """

    nodes: tuple[str, ...] = ("gpu-0", "gpu-1", "gpu-2")
    total_steps: int = 300
    now: float = 1_790_000_000.0
    step: int = 0
    generation: int = 0
    journals: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    events: list[dict[str, object]] = field(default_factory=list)
    result: dict[str, object] = field(default_factory=dict)
    training_nodes: list[str] = field(default_factory=list)
    original_nodes: dict[str, str] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)

    def wait(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def write(self, node: str, kind: str, /, **values: object) -> None:
        line = {"at": self.now, "kind": kind, **values}
        self.journals.setdefault(self.worker(node), []).append(line)

    def worker(self, node: str) -> str:
        return f"fashion-worker-{self.nodes.index(self.original_nodes.get(node, node))}"

    def replace(self, node: str, successor: str) -> Self:
        """Move the worker of a lost node to its successor."""
        self.original_nodes[successor] = self.original_nodes.get(node, node)
        return self

    def form(self, *nodes: str, resume_from: int | None = None) -> Self:
        """Start a new generation on the nodes, as when torchrun restarts all workers."""
        self.training_nodes = list(nodes)
        self.generation += 1
        self.step = self.step if resume_from is None else resume_from
        for rank, node in enumerate(nodes):
            group = {"generation": self.generation, "world_size": len(nodes), "rank": rank}
            self._start(node, **group)
            self.write(node, "generation", step=self.step, **group)
        return self

    def _start(self, node: str, **group: int) -> None:
        self.write(
            node, "start", worker=self.worker(node), node=node, job="fashion",
            model="resnet18", dataset="fashion-mnist", total_steps=self.total_steps,
            epochs=3, global_batch=GLOBAL_BATCH, dataset_size=60_000, summed_bytes=SUMMED_BYTES, **group,
        )  # fmt: skip

    def train(self, steps: int) -> Self:
        for _ in range(steps):
            self.now += STEP_SECONDS
            self.step += 1
            self.write(
                self.training_nodes[0], "step", step=self.step, epoch=(self.step - 1) // 100 + 1,
                seconds=STEP_SECONDS, images=GLOBAL_BATCH, loss=2.3 * 0.99**self.step,
                learning_rate=0.1, world_size=len(self.training_nodes), generation=self.generation,
            )  # fmt: skip
        return self

    def event(self, kind: str, node: str) -> Self:
        self.events.append({"at": self.now, "kind": kind, "node": node})
        return self

    def regroup(self, *nodes: str) -> Self:
        """Form the next group from surviving and new workers."""
        self.generation += 1
        for rank, node in enumerate(nodes):
            group = {"generation": self.generation, "world_size": len(nodes), "rank": rank}
            received_bytes: dict[str, int] = {}
            if node not in self.training_nodes:
                self._start(node, **group)
                received_bytes = {"0": STATE_BYTES}
            self.write(node, "generation", step=self.step, received_bytes=received_bytes, **group)
        self.training_nodes = list(nodes)
        return self

    def begin_move(self, origin: str = "zone-a", destination: str = "zone-b") -> Self:
        self.moves.append(
            Move(self.now, None, origin, destination, f"{destination} offers 2 machines")
        )
        return self

    def end_move(self, *, abandoned: bool = False) -> Self:
        self.moves[-1] = replace(self.moves[-1], ended=self.now, abandoned=abandoned)
        return self

    def finish(self, accuracy: float = 0.8912) -> Self:
        first_node = self.training_nodes[0]
        self.write(first_node, "evaluation", step=self.step, epoch=3, accuracy=accuracy, loss=0.3)
        for node in self.training_nodes:
            self.write(node, "finish", step=self.step, accuracy=accuracy, seconds=1.0)
        self.result = {"job": "fashion", "model": "resnet18", "dataset": "fashion-mnist",
                       "steps": self.step, "accuracy": accuracy}  # fmt: skip
        return self

    def run(self) -> RunRecord:
        journals = {
            worker: "".join(json.dumps(line) + "\n" for line in lines)
            for worker, lines in self.journals.items()
        }
        events = "".join(json.dumps(line) + "\n" for line in self.events)
        result = json.dumps(self.result) if self.result else ""
        return replace(assemble(journals, events, result), moves=tuple(self.moves))


def two_zones() -> RecordedRun:
    """Return the record of a group that moves: two machines of zone a leave when two of zone b have joined.

    The group pauses for 2 s when the new workers join and for 1 s when the old ones leave.
    """
    recorded_run = RecordedRun(("gpu-0", "gpu-1", "gpu-2", "gpu-3"))
    recorded_run.form("gpu-0", "gpu-1").train(40).begin_move().train(60)
    recorded_run.regroup("gpu-0", "gpu-1", "gpu-2", "gpu-3").wait(2.0).train(120)
    recorded_run.regroup("gpu-2", "gpu-3").wait(1.0).train(4)
    return recorded_run.end_move().train(40)


def drill() -> RecordedRun:
    """Return the record of `up --drill`: one node is drained, one vanishes, both return, and the job finishes."""
    recorded_run = RecordedRun().form("gpu-0", "gpu-1", "gpu-2").train(60)
    recorded_run.event("drain", "gpu-1").wait(4.0).form("gpu-0", "gpu-2").train(30)
    recorded_run.event("return", "gpu-1").wait(3.0).train(4).wait(2.5).form(
        "gpu-0", "gpu-1", "gpu-2"
    )
    recorded_run.train(50).event("vanish", "gpu-0").wait(11.0)
    recorded_run.form("gpu-1", "gpu-2", resume_from=recorded_run.step - 4).train(40)
    recorded_run.event("return", "gpu-0").train(8).wait(2.5).form("gpu-0", "gpu-1", "gpu-2")
    return recorded_run.train(300 - recorded_run.step).finish()
