"""The workers that have joined the group, from their metrics: each counts the steps that it has completed itself.

A running pod has not necessarily joined: its program first loads libraries, waits for the group's next step and copies
the state. On a busy machine this takes minutes. A worker that has completed a step has the state.

A readiness probe is not an alternative, because pods of users' programs have none. It would also remove a worker that
waits for its group from the Services through which the other workers find it.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from controller.objects import Pod
from controller.worker_metrics import read_values, scrape
from everstep.catalog.metrics import WORKER_STEPS

PARALLEL_REQUESTS = 32  # an unresponsive worker must not delay the others

Process = tuple[str, datetime | None]  # uid of the pod and start of its container


def has_joined(text: str, pod: Pod) -> bool:
    """Return True if these are the metrics of a worker that has completed a step.

    Another worker may have the address of a pod that has ended.
    """
    lines = [line for line in text.splitlines() if f'worker="{pod.name}"' in line]
    return read_values(lines, WORKER_STEPS).get(WORKER_STEPS, 0.0) >= 1


@dataclass
class JoinReader:
    """Reader that finds the workers of all jobs that have joined their group.

    During a move, a worker that has joined is scraped again only if its container or the controller restarts.

    Attributes:
        scrape: function that returns the metrics at the address of a pod.
    """

    scrape: Callable[[str], str] = scrape
    _joined_processes: dict[str, frozenset[Process]] = field(default_factory=dict)

    def joined_pods(self, uid: str, pods: Iterable[Pod]) -> frozenset[str]:
        """Return the uids of the pods that have joined the group.

        Args:
            uid: uid of the job.
            pods: the pods that the move waits for.
        """
        running = {(pod.uid, pod.started): pod for pod in pods if pod.phase == "Running"}
        joined_processes = self._joined_processes.get(uid, frozenset()) & running.keys()
        other_processes = {
            process: pod for process, pod in running.items() if process not in joined_processes
        }
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
            results = threads.map(self._has_joined, other_processes.values())
        joined_processes |= {
            process for process, joined in zip(other_processes, results, strict=True) if joined
        }
        self._joined_processes[uid] = joined_processes
        return frozenset(pod_uid for pod_uid, _ in joined_processes)

    def forget(self, uid: str) -> None:
        """Forget a job that does not move or is deleted."""
        self._joined_processes.pop(uid, None)

    def _has_joined(self, pod: Pod) -> bool:
        try:
            return bool(pod.address) and has_joined(self.scrape(pod.address), pod)
        except (OSError, ValueError):
            return False
