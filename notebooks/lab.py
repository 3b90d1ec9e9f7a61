"""Helpers of the lab's notebooks: the choice of a cloud, and waiting for a training run."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

CLOUDS = ("eks", "aks")
POLL_SECONDS = 3.0
TERMINAL_VARIABLES = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")
"""Set by the kernel: programs would draw into a cell as on a terminal, one frame after the other."""

COLUMNS = "120"
TIMEOUT_SECONDS = 1800.0
"""Longest time to wait for a change: a cloud needs minutes for a GPU node, a busy twin for an epoch."""


def choose(cloud: str, *, account: bool) -> None:
    """Set the variables STACK and TWIN, which the commands of the notebooks use.

    Args:
        cloud: one of CLOUDS.
        account: whether the commands change your account, which costs money, instead of the twin.

    Raises:
        ValueError: the cloud is not one of CLOUDS.
    """
    if cloud not in CLOUDS:
        raise ValueError(f"CLOUD is {cloud!r}: choose one of {', '.join(CLOUDS)}")
    for name in TERMINAL_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(STACK=f"{cloud}-dev", TWIN="" if account else "--twin", COLUMNS=COLUMNS)
    target = "your account: marked cells cost money" if account else "the twin, which is free"
    print(f"The commands use the stack {cloud}-dev in {target}.")


def status() -> dict[str, Any]:
    """Return the output of `everstep status`: nodes, the job, the training; empty if it fails, as before `up`."""
    return _query("status", *_stack())


def report(run: str = "") -> dict[str, Any]:
    """Return the output of `everstep report`: steps, group sizes, events; empty if it fails, as before the first step.

    A cloud records no events of machines: in an account, the list of events is empty.

    Args:
        run: folder of a run of `everstep launch`; empty for the training run of the stack.
    """
    return _query("report", *(["--run", run] if run else _stack()))


def gpu_nodes() -> list[str]:
    """Return the names of the GPU nodes that are ready."""
    nodes = status().get("nodes", ())
    return [node["name"] for node in nodes if node["pool"] == "gpu-spot" and node["ready"]]


def workers(run_report: dict[str, Any]) -> int:
    """Return the current number of workers in a report; 0 before the first step."""
    sizes = run_report.get("world_sizes")
    return int(sizes[-1]["world_size"]) if sizes else 0


def wait_until(goal: str, is_reached: Callable[[], object]) -> None:
    """Wait until a condition holds, and print how long it took.

    Raises:
        TimeoutError: the condition does not hold in time.
    """
    started_at = time.monotonic()
    while not is_reached():
        if time.monotonic() - started_at > TIMEOUT_SECONDS:
            raise TimeoutError(
                f"not within {TIMEOUT_SECONDS:.0f} s: {goal}. `everstep status` shows what is missing."
            )
        time.sleep(POLL_SECONDS)
    print(f"{goal} (after {time.monotonic() - started_at:.0f} s)")


def _stack() -> list[str]:
    """Return the options that select the stack."""
    return ["--stack", os.environ["STACK"], *os.environ["TWIN"].split()]


def _query(command: str, *options: str) -> dict[str, Any]:
    result = subprocess.run(
        ["everstep", command, "--json", *options], capture_output=True, text=True, check=False
    )
    return json.loads(result.stdout) if result.returncode == 0 else {}
