"""Execution of programs whose mounts and processes end with them, and with this process.

A debootstrap or a buildah that is killed leaves /proc and /dev of the host mounted in a folder that is removed
later. The program therefore runs in new mount and PID namespaces. When this process ends, the kernel kills the
PID 1 of the PID namespace, and with it all other processes and mounts of the program.
"""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_LINES = 200
KILLED_WITH_PARENT = ("setpriv", "--pdeathsig=KILL", "--")
OWN_MOUNTS = ("unshare", "--mount", "--propagation=private")
OWN_PROCESSES = ("--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--")


@dataclass(frozen=True)
class ProgramResult:
    """A program's exit code and its last lines on standard output and error."""

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
) -> ProgramResult:
    """Run a program in its own mount and PID namespaces; end it if this process is interrupted.

    Args:
        arguments: the program and its arguments.
        environment: variables in addition to this process's variables.
        on_line: function that is called with each line that the program prints, without trailing whitespace.
    """
    process = subprocess.Popen(
        [*KILLED_WITH_PARENT, *OWN_MOUNTS, *OWN_PROCESSES, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )
    last_lines: deque[str] = deque(maxlen=MAX_LINES)
    try:
        for line in process.stdout or ():
            last_lines.append(line.rstrip())
            on_line(last_lines[-1])
        return ProgramResult(process.wait(), tuple(last_lines))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
