"""Run a program that mounts things so that no mount and no process of it can outlive it, or us.

A debootstrap or a buildah that is killed half-way leaves /proc and /dev of the host mounted in a
folder that somebody will want to remove. In a mount and a pid namespace of its own it cannot: when
its first process ends, and the kernel ends that one when we end, all of it is gone.
"""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

KEPT_LINES = 200
DIES_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
OWN_MOUNTS = ("unshare", "--mount", "--propagation=private")
OWN_PROCESSES = ("--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--")


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit code, and its last lines on standard output and error."""

    code: int
    lines: tuple[str, ...]

    @property
    def output(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None] = lambda _: None,
) -> Finished:
    """Run a program confined, telling `on_line` of each line it prints; end it if we are interrupted.

    Args:
        arguments: the program and its arguments.
        environment: variables to add to ours.
        on_line: called with each line, without its end.
    """
    process = subprocess.Popen(
        [*DIES_WITH_US, *OWN_MOUNTS, *OWN_PROCESSES, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        for line in process.stdout or ():
            kept.append(line.rstrip())
            on_line(kept[-1])
        return Finished(process.wait(), tuple(kept))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
