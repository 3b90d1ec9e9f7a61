"""Execute a schedule of faults on a cluster, and log the actions in `faults.jsonl`.

Each round begins and ends its faults at their times, restarts the nodes that have ended, and waits until all nodes
train together. Times in the file are from this process's monotonic clock, which no fault changes.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.chaos.cluster import Cluster, sleep_until
from tests.chaos.schedule import Round, ScheduledFault

RECOVERY_SECONDS = 300.0
"""Time limit for all nodes to train together again; a loaded machine needs a minute to start a node."""
POLL_SECONDS = 0.05
RECOVERED_STEPS = 2  # steps that every node applies in the full group
START_GROUP_SECONDS = 300.0
RECORD_SECONDS = 100.0
MEMORY_MARGIN_BYTES = 48 << 20
MEMORY_HOG = "import time; blocks = [bytearray(1 << 20) for _ in range(160)]; time.sleep(60)"
"""Allocates more memory than the node has left, and less than a killed worker frees."""
TORN_STEPS_AHEAD = 1_000  # the nodes do not save a step this far ahead soon


class NotRecoveredError(AssertionError):
    """The nodes did not train together again in time."""


class Nemesis:
    """The injector of a schedule's faults.

    Args:
        cluster: the cluster that gets the faults.
        on_fault: called with each fault when it begins.
    """

    def __init__(
        self, cluster: Cluster, on_fault: Callable[[ScheduledFault], None] = lambda _: None
    ) -> None:
        self._cluster, self._on_fault = cluster, on_fault
        self._path = cluster.folder / "faults.jsonl"
        self._stopped_processes: dict[str, int] = {}
        self._hogs: dict[str, subprocess.Popen[bytes]] = {}
        self._saved_revisions: dict[
            str, int
        ] = {}  # newest recorded revision at each save of etcd, by fault
        self._torn_count = 0
        self.counts: Counter[str] = Counter()
        self._fault_actions = self._actions()

    def start_all(self) -> None:
        """Start all nodes and wait until they train together."""
        for name in self._cluster.nodes:
            self._cluster.start(name)
        self._wait_until_recovered(START_GROUP_SECONDS)

    def play(self, rounds: tuple[Round, ...]) -> None:
        """Execute all rounds.

        Raises:
            NotRecoveredError: not all nodes train together in time after a round.
        """
        for number, round_ in enumerate(rounds):
            time.sleep(round_.pause)
            self._note("round", number=number)
            self._play_round(number, round_)
            self._note("faults_end", bound=RECOVERY_SECONDS)
            self._wait_until_recovered(RECOVERY_SECONDS)

    def finish(self) -> None:
        """Drain all nodes: the last one saves the last step."""
        self._note("drain_all")
        for name in self._cluster.nodes:
            self._cluster.drain(name)
        for name in self._cluster.nodes:
            self._note("left", target=name, code=self._cluster.wait_for_exit(name))
        revision = max(map(self._cluster.etcd.revision, self._cluster.etcd.names))
        self._note("revision", newest=revision)
        is_complete = self._cluster.recorder.wait_for(revision, RECORD_SECONDS)
        assert is_complete, f"the recorder has no revision {revision} after {RECORD_SECONDS:g} s"

    # --- one round ---

    def _play_round(self, number: int, round_: Round) -> None:
        started_at = time.monotonic()
        pending = [
            (started_at + fault.at, False, f"{number}-{index}", fault)
            for index, fault in enumerate(round_.faults)
        ]
        while pending:
            pending.sort(key=lambda action: action[:3])
            due, is_end, name, fault = pending.pop(0)
            sleep_until(due)
            if is_end:
                self._end(name, fault)
            else:
                self._begin(name, fault)
                pending.append((time.monotonic() + fault.seconds, True, name, fault))
        self._start_missing()

    def _begin(self, name: str, fault: ScheduledFault) -> None:
        self._on_fault(fault)
        begin, _ = self._fault_actions[fault.kind]
        details = begin(name, fault) or {}
        self.counts[fault.kind] += 1
        self._note(
            "begin",
            fault=name,
            type=fault.kind,
            targets=fault.targets,
            amount=fault.amount,
            **details,
        )

    def _end(self, name: str, fault: ScheduledFault) -> None:
        _, end = self._fault_actions[fault.kind]
        end(name, fault)
        self._note("end", fault=name, type=fault.kind)

    def _start_missing(self) -> None:
        """Start the nodes that have ended, as a controller replaces pods."""
        for name in self._cluster.nodes:
            if not self._cluster.is_running(name):
                code = self._cluster.exit_code(name)
                self._cluster.kill_node(name)
                self._note("start", target=name, code=code)
                self._cluster.start(name)

    def _wait_until_recovered(self, seconds: float) -> None:
        """Wait until every node has applied steps in a group of all nodes, and etcd has this group's generation.

        An etcd that has lost this generation gets the next one within about a second. If all agents ended before that,
        no agent would know which generation numbers were used.
        """
        cluster, deadline = self._cluster, time.monotonic() + seconds
        initial_counts = cluster.applied_steps()
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            step_counts = cluster.applied_steps()
            for name, count in step_counts.items():
                if count < 0 or initial_counts[name] < 0:
                    initial_counts[name] = count
            if (
                all(
                    step_counts[n] >= 0 and step_counts[n] >= initial_counts[n] + RECOVERED_STEPS
                    for n in cluster.nodes
                )
                and cluster.recorder.generation == cluster.generation()
            ):
                self._note("recovered", nodes=len(cluster.nodes))
                return
            self._start_missing()
        self._note("not_recovered")
        raise NotRecoveredError(f"not all nodes train together after {seconds} s\n{cluster.logs()}")

    def _note(self, event: str, **fields: object) -> None:
        line = {"at": round(time.monotonic(), 3), "event": event, **fields}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    # --- faults: how each begins and ends ---

    def _actions(self) -> Mapping[str, tuple["_Begin", "_End"]]:
        network, etcd = self._cluster.network, self._cluster.etcd
        return {
            "kill-worker": (self._kill_worker, _no_action),
            "kill-agent": (
                lambda _, fault: self._cluster.kill_agent(*fault.targets),
                self._restart,
            ),
            "kill-node": (lambda _, fault: self._cluster.kill_node(*fault.targets), self._restart),
            "kill-all": (self._kill_all, self._restart),
            "freeze-node": (
                lambda _, fault: self._cluster.groups[fault.targets[0]].freeze(),
                lambda _, fault: self._cluster.groups[fault.targets[0]].thaw(),
            ),
            "freeze-worker": (self._freeze_worker, self._thaw_worker),
            "drain": (lambda _, fault: self._cluster.drain(*fault.targets), self._restart_drained),
            "out-of-memory": (self._exhaust_memory, self._free_memory),
            "clock-step": (
                lambda _, fault: self._cluster.shift_clock(fault.targets[0], fault.amount),
                lambda _, fault: self._cluster.shift_clock(fault.targets[0], 0),
            ),
            **dict.fromkeys(_CUTS, (self._cut, self._heal)),
            "loss": (
                lambda name, fault: network.drop_packets(name, fault.targets[0], fault.amount),
                self._heal,
            ),
            "slow-link": (
                lambda _, fault: network.limit_rate(fault.targets[0], fault.amount),
                lambda _, fault: network.remove_rate_limit(fault.targets[0]),
            ),
            "latency": (
                lambda _, fault: network.delay(fault.targets[0], fault.amount),
                lambda _, fault: network.remove_delay(fault.targets[0]),
            ),
            "etcd-kill": (
                lambda _, fault: etcd.kill(*fault.targets),
                lambda _, fault: etcd.start(*fault.targets),
            ),
            "etcd-freeze": (
                lambda _, fault: etcd.freeze(*fault.targets),
                lambda _, fault: etcd.thaw(*fault.targets),
            ),
            "etcd-compact": (self._compact, _no_action),
            "etcd-slow-disk": (
                lambda _, fault: etcd.slow_disk(fault.targets[0], fault.amount),
                lambda _, fault: etcd.slow_disk(fault.targets[0], 0),
            ),
            "etcd-restore": (
                lambda name, _: self._save_etcd(name, etcd.back_up),
                lambda name, fault: self._restore_etcd(name, fault, etcd.kill_and_restore),
            ),
            "etcd-snapshot": (
                lambda name, _: self._save_etcd(name, etcd.save_snapshot),
                lambda name, fault: self._restore_etcd(name, fault, etcd.kill_and_restore_snapshot),
            ),
            "etcd-wipe": (self._wipe_etcd, self._start_etcd),
            "disk-hang": (
                lambda _, fault: self._hang_disks(fault, hangs=True),
                lambda _, fault: self._hang_disks(fault, hangs=False),
            ),
            "disk-full": (self._fill_disk, self._free_disk),
            "torn-checkpoint": (self._tear_and_kill_all, self._restart),
        }

    def _kill_worker(self, name: str, fault: ScheduledFault) -> "_Details":
        del name
        return {"process": self._cluster.signal_worker(fault.targets[0], signal.SIGKILL)}

    def _kill_all(self, name: str, fault: ScheduledFault) -> None:
        del name
        for node in fault.targets:
            self._cluster.kill_node(node)

    def _restart(self, name: str, fault: ScheduledFault) -> None:
        """Start nodes again; kill processes that outlived their agent, as the removal of a pod's sandbox does."""
        del name, fault
        self._start_missing()

    def _restart_drained(self, name: str, fault: ScheduledFault) -> None:
        del name
        (node,) = fault.targets
        self._note("left", target=node, code=self._cluster.wait_for_exit(node))
        self._start_missing()

    def _freeze_worker(self, name: str, fault: ScheduledFault) -> "_Details":
        process = self._cluster.signal_worker(fault.targets[0], signal.SIGSTOP)
        self._stopped_processes[name] = process or 0
        return {"process": process}

    def _thaw_worker(self, name: str, fault: ScheduledFault) -> None:
        process = self._stopped_processes.pop(name)
        if process in self._cluster.groups[fault.targets[0]].processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def _exhaust_memory(self, name: str, fault: ScheduledFault) -> "_Details":
        """Make the kernel kill the worker because its group is out of memory."""
        (node,) = fault.targets
        group, worker = self._cluster.groups[node], self._cluster.worker(node)
        if worker:
            with contextlib.suppress(OSError):
                Path(f"/proc/{worker}/oom_score_adj").write_text("1000")
        group.limit_memory(MEMORY_MARGIN_BYTES)
        command = [
            *KILLED_WITH_PARENT,
            *group.enter_command,
            sys.executable,
            "-I",
            "-S",
            "-c",
            MEMORY_HOG,
        ]
        self._hogs[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        return {"process": worker}

    def _free_memory(self, name: str, fault: ScheduledFault) -> None:
        hog = self._hogs.pop(name)
        hog.kill()
        hog.wait()
        self._cluster.groups[fault.targets[0]].remove_memory_limit()

    def _cut(self, name: str, fault: ScheduledFault) -> None:
        etcd = () if fault.kind == "split" and fault.amount else self._cluster.etcd.names
        pairs = _CUTS[fault.kind](fault.targets, self._cluster.nodes, etcd)
        self._cluster.network.cut(name, list(pairs))

    def _heal(self, name: str, fault: ScheduledFault) -> None:
        del fault
        self._cluster.network.heal(name)

    def _compact(self, name: str, fault: ScheduledFault) -> "_Details":
        del name, fault
        revision = self._cluster.recorder.revision
        self._cluster.etcd.compact(revision)
        return {"revision": revision}

    def _save_etcd(self, name: str, save: Callable[[], None]) -> "_Details":
        """Save etcd's data with all changes that the recorder has recorded; it may contain later ones."""
        self._saved_revisions[name] = self._cluster.recorder.revision
        save()
        return {"revision": self._saved_revisions[name]}

    def _restore_etcd(
        self, name: str, fault: ScheduledFault, kill_and_restore: Callable[[], None]
    ) -> None:
        """Start etcd with the saved data; later revisions that it has reported no longer exist."""
        kill_and_restore()
        self._cluster.recorder.record_restore(self._saved_revisions.pop(name))
        self._start_etcd(name, fault)

    def _wipe_etcd(self, name: str, fault: ScheduledFault) -> None:
        """Kill etcd and remove all its data, as a restart of an in-memory etcd does."""
        del name, fault
        self._cluster.etcd.kill_and_wipe()
        self._cluster.recorder.record_restore(0)

    def _start_etcd(self, name: str, fault: ScheduledFault) -> None:
        del name
        for member in fault.targets:
            self._cluster.etcd.start(member)

    def _hang_disks(self, fault: ScheduledFault, *, hangs: bool) -> None:
        for node in self._cluster.nodes if fault.amount else fault.targets:
            self._cluster.hang_disk(node, hangs=hangs)

    def _fill_disk(self, name: str, fault: ScheduledFault) -> None:
        del name, fault
        ballast = (self._cluster.disk / ".ballast").open("wb", buffering=0)
        with ballast, contextlib.suppress(OSError):  # until the disk is full
            while True:
                ballast.write(bytes(1 << 20))

    def _free_disk(self, name: str, fault: ScheduledFault) -> None:
        del name, fault
        (self._cluster.disk / ".ballast").unlink()

    def _tear_and_kill_all(self, name: str, fault: ScheduledFault) -> "_Details":
        """Kill all nodes, and leave a newer checkpoint with a truncated state file, as if the disk had lost its end."""
        self._kill_all(name, fault)
        folders = sorted(self._cluster.disk.glob("step-*"))
        if not folders:
            return {}
        newest_folder, self._torn_count = folders[-1], self._torn_count + 1
        step = int(newest_folder.name.removeprefix("step-")) + TORN_STEPS_AHEAD * self._torn_count
        torn_folder = self._cluster.disk / f"step-{step:08d}"
        torn_folder.mkdir()
        manifest = json.loads((newest_folder / "manifest.json").read_text())
        (torn_folder / "manifest.json").write_text(json.dumps(_renumber(manifest, step), indent=1))
        state = (newest_folder / "state.safetensors").read_bytes()
        (torn_folder / "state.safetensors").write_bytes(state[: len(state) // 2])
        return {"folder": torn_folder.name}


def _renumber(manifest: dict[str, Any], step: int) -> dict[str, Any]:
    """Return a manifest with another step and a valid seal, so that only the state file is torn."""
    content = {name: v for name, v in manifest.items() if name not in ("format", "seal")}
    content["step"] = step
    seal = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    return {"format": manifest["format"], "seal": seal, **content}


_Details = dict[str, Any]
_Begin = Callable[[str, ScheduledFault], _Details | None]
_End = Callable[[str, ScheduledFault], None]
_Names = tuple[str, ...]
_Pairs = Iterator[tuple[str, str]]


def _no_action(name: str, fault: ScheduledFault) -> None:
    """Do nothing: the fault ends on its own."""
    del name, fault


def _symmetric(first: _Names, second: _Names) -> _Pairs:
    for source in first:
        for destination in second:
            if source != destination:
                yield from ((source, destination), (destination, source))


def _isolate(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    return _symmetric(targets[:1], (*nodes, *etcd))


def _one_direction(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    del nodes, etcd
    yield (targets[0], targets[1])


def _cut_workers(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    del etcd
    return _symmetric(targets[:1], nodes)


def _cut_etcd(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    del nodes
    return _symmetric(targets, etcd)


def _split(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    """Yield the pairs between the two halves, and between the first half and etcd."""
    return _symmetric(targets, (*(n for n in nodes if n not in targets), *etcd))


def _etcd_isolate(targets: _Names, nodes: _Names, etcd: _Names) -> _Pairs:
    return _symmetric(targets, (*nodes, *etcd))


_CUTS: dict[str, Callable[[_Names, _Names, _Names], _Pairs]] = {
    "isolate": _isolate,
    "one-direction": _one_direction,
    "cut-workers": _cut_workers,
    "cut-etcd": _cut_etcd,
    "split": _split,
    "etcd-isolate": _etcd_isolate,
}
