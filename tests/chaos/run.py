"""Run seeded schedules of faults on a real local cluster, and check the files that they leave: `make test-chaos`.

    python -m tests.chaos.run --seeds 10              # seeds 0 to 9
    python -m tests.chaos.run --seed 7                # the schedule of seed 7 again
    python -m tests.chaos.run --seeds 10 --json
    python -m tests.chaos.run --seeds 4 --faults 6 --kinds etcd-wipe etcd-restore

Needs root. Each seed is a separate run: four nodes, one etcd member for even seeds and three for odd ones.
Exits with 1 if an invariant is broken or a run does not complete; --keep names a folder for the files of such a run.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.checker import Violation, check, recoveries, summary
from tests.chaos.cluster import Cluster
from tests.chaos.nemesis import Nemesis, NotRecoveredError
from tests.chaos.schedule import KINDS, NODES, Round, members, schedule

PROGRAMS = ("ip", "nft", "tc", "nsenter", "unshare", "setpriv", "mount", "go")
FIX = (
    "Run as root: sudo make test-chaos. On Debian: apt-get install iproute2 mount nftables util-linux; "
    "Go is at go.dev"
)
FAULTS_PER_SEED = len(KINDS)  # each kind once


@dataclass(frozen=True)
class ChaosOutcome:
    """Result of one seed.

    Attributes:
        seed: seed of the schedule.
        faults: number of injected faults of each kind.
        checked: number of checked items of the history, by name.
        recoveries: kinds of faults of each round, and the seconds until all nodes trained again.
        violations: broken invariants.
        seconds: duration.
        error: error of the run itself, if it could not be completed.
    """

    seed: int
    faults: dict[str, int]
    checked: dict[str, int]
    recoveries: list[tuple[list[str], float]]
    violations: list[Violation]
    seconds: float
    error: str = ""


def play(
    folder: Path,
    seed: int,
    rounds: Sequence[Round],
    nodes: Sequence[str] = NODES,
    *,
    keep: Path | None = None,
) -> ChaosOutcome:
    """Run a schedule and check its history; copy it to `keep` on a violation or an error."""
    started_at, error = time.monotonic(), ""
    cluster = Cluster(folder, nodes, members(seed), _options(seed))
    total = sum(len(round_.faults) for round_ in rounds)
    nemesis = Nemesis(
        cluster, lambda fault: _print_progress(seed, nemesis.counts, total, fault.kind)
    )
    with contextlib.closing(cluster):
        try:
            nemesis.start_all()
            nemesis.play(tuple(rounds))
            nemesis.finish()
        except NotRecoveredError as failure:
            error = str(failure)
        finally:
            cluster.close_processes()
        violations, coverage, recovery_times = check(folder), summary(folder), recoveries(folder)
        if keep and (violations or error):
            ignore = shutil.ignore_patterns("*.tmp", *cluster.etcd.names)
            shutil.copytree(folder, keep / str(seed), ignore=ignore, dirs_exist_ok=True)
    seconds = round(time.monotonic() - started_at, 1)
    return ChaosOutcome(
        seed, dict(nemesis.counts), coverage, recovery_times, violations, seconds, error
    )


def _options(seed: int) -> list[str]:
    """Return the program's options: every third seed trains in mode `exact`."""
    return ["--mode", "exact"] if seed % 3 == 2 else []


def _print_progress(seed: int, counts: Counter[str], total: int, kind: str) -> None:
    print(f"seed {seed}: fault {counts.total() + 1} of {total}, {kind}", file=sys.stderr)


def main() -> None:
    """Run all seeds and print a table of faults and invariants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    parser.add_argument("--seeds", type=int, default=1, help="number of runs")
    parser.add_argument(
        "--faults", type=int, default=FAULTS_PER_SEED, help="number of faults in each run"
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help="kinds of faults"
    )
    parser.add_argument("--keep", type=Path, help="folder for the files of failed runs")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    options = parser.parse_args()
    if missing_prerequisites := _missing_prerequisites():
        sys.exit(f"error: chaos tests need {', '.join(missing_prerequisites)}\n  {FIX}")
    outcomes = []
    for seed in range(options.seed, options.seed + options.seeds):
        rounds = schedule(seed, options.faults, kinds=options.kinds)
        outcomes.append(_run_seed(seed, rounds, options.keep))
        if not options.json:
            _print_outcome(outcomes[-1], _repeat_command(options, seed))
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        _print_table(outcomes)
    sys.exit(1 if any(outcome.violations or outcome.error for outcome in outcomes) else 0)


def _missing_prerequisites() -> list[str]:
    """Return the missing prerequisites of this machine."""
    programs = [program for program in PROGRAMS if not shutil.which(program)]
    return [*(["root"] if os.geteuid() else []), *programs]


def _run_seed(seed: int, rounds: Sequence[Round], keep: Path | None) -> ChaosOutcome:
    with tempfile.TemporaryDirectory(prefix="everstep-chaos-") as scratch:
        return play(Path(scratch) / str(seed), seed, rounds, keep=keep)


def _repeat_command(options: argparse.Namespace, seed: int) -> str:
    """Return the command that runs the schedule of a seed again."""
    command = f"python -m tests.chaos.run --seed {seed}"
    if options.faults != FAULTS_PER_SEED or options.kinds != KINDS:
        command += f" --faults {options.faults} --kinds {' '.join(options.kinds)}"
    return command


def _print_outcome(outcome: ChaosOutcome, repeat_command: str) -> None:
    checked = ", ".join(f"{count} {name}" for name, count in outcome.checked.items())
    faults = sum(outcome.faults.values())
    print(
        f"seed {outcome.seed}: {faults} faults, {checked}, {len(outcome.violations)} violations, "
        f"{outcome.seconds:.0f} s",
        flush=True,
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation.kind}: {violation.detail}")
    if outcome.error:
        print(f"  ERROR {outcome.error}")
    if outcome.violations or outcome.error:
        print(f"  repeat with: {repeat_command}", flush=True)


def _print_table(outcomes: Sequence[ChaosOutcome]) -> None:
    counts: Counter[str] = Counter()
    seconds = defaultdict[str, list[float]](list)
    for outcome in outcomes:
        counts.update(outcome.faults)
        for kinds, recovery in outcome.recoveries:
            for kind in kinds:
                seconds[kind].append(recovery)
    print(f"{'fault':18} {'count':>5} {'seconds until all nodes train: median':>38} {'maximum':>8}")
    for kind, count in sorted(counts.items()):
        times = seconds[kind] or [float("nan")]
        print(f"{kind:18} {count:5} {statistics.median(times):38.1f} {max(times):8.1f}")
    violations = sum(len(outcome.violations) for outcome in outcomes)
    stuck_runs = sum(bool(outcome.error) for outcome in outcomes)
    print(
        f"{counts.total()} faults in {len(outcomes)} runs, {violations} violations, {stuck_runs} stuck"
    )


if __name__ == "__main__":
    main()
