"""A control group that freezes and kills all processes of a simulated machine together, and limits their memory.

Version 2 of the kernel's control groups freezes and kills a group atomically, so that no process escapes
by forking. In hybrid mode, version 2 is mounted next to version 1 without controllers, and the memory limit is set in
version 1.
"""

import contextlib
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path("/sys/fs/cgroup")
POLL_SECONDS = 0.02
END_SECONDS = 100.0


class ControlGroup:
    """The processes of one machine.

    Args:
        name: name of the group, unique on this system.
    """

    def __init__(self, name: str) -> None:
        is_hybrid = (ROOT / "unified").is_dir()
        self.folder = (ROOT / "unified" if is_hybrid else ROOT) / name
        self._memory = ROOT / "memory" / name if is_hybrid else self.folder
        self._limit = self._memory / ("memory.limit_in_bytes" if is_hybrid else "memory.max")
        self._usage = self._memory / ("memory.usage_in_bytes" if is_hybrid else "memory.current")
        self._unlimited = "-1" if is_hybrid else "max"
        for folder in {self.folder, self._memory}:
            folder.mkdir()

    @property
    def enter_command(self) -> tuple[str, ...]:
        """The command prefix that runs another command inside."""
        script = 'echo $$ > "$0"; echo $$ > "$1"; shift; exec "$@"'
        files = [str(folder / "cgroup.procs") for folder in (self.folder, self._memory)]
        return ("sh", "-c", script, *files)

    def processes(self) -> list[int]:
        """Return the IDs of all processes."""
        with contextlib.suppress(OSError):
            return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]
        return []

    def freeze(self) -> None:
        """Stop all processes, including processes that are being forked."""
        (self.folder / "cgroup.freeze").write_text("1")

    def thaw(self) -> None:
        """Resume all processes."""
        (self.folder / "cgroup.freeze").write_text("0")

    def kill(self) -> None:
        """Kill all processes, and wait until they have ended."""
        (self.folder / "cgroup.kill").write_text("1")
        wait_until(
            lambda: not self.processes(),
            f"all processes of {self.folder} have ended after SIGKILL",
            END_SECONDS,
            details=self.processes,
            interval_seconds=POLL_SECONDS,
        )

    def limit_memory(self, extra_bytes: int) -> None:
        """Limit the memory to the current use plus `extra_bytes`."""
        self._limit.write_text(str(int(self._usage.read_text()) + extra_bytes))

    def remove_memory_limit(self) -> None:
        """Remove the limit."""
        self._limit.write_text(self._unlimited)

    def close(self) -> None:
        """Kill all processes and remove the group."""
        self.thaw()
        self.kill()
        for folder in {self.folder, self._memory}:
            with contextlib.suppress(OSError):
                folder.rmdir()
