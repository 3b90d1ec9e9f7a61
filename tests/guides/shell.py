"""A shell in which the commands of a guide run one after the other, as a user types them."""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
[ -e "$SESSION" ] && . "$SESSION"
{command}
code=$?
{{ declare -px; printf 'cd %q\\n' "$PWD"; }} > "$SESSION"
exit $code
"""
"""Script that runs a command with the folder and the variables that earlier commands left."""


@dataclass(frozen=True)
class Shell:
    """A user's shell.

    Attributes:
        folder: the folder of the first command.
        environment: the variables of the first command.
        log: file that the output of all commands is appended to.
    """

    folder: Path
    environment: Mapping[str, str]
    log: Path

    def start(self, command: str) -> "subprocess.Popen[str]":
        """Start a command in its own session; stderr is part of its output.

        Ctrl-C ends it as in a terminal, even if the tests ignore SIGINT because a shell runs them in the background.
        """
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # The command would inherit an ignored signal.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        session = str(self.log.with_suffix(".session"))
        return subprocess.Popen(
            ["bash", "-c", SCRIPT.format(command=command)],
            cwd=self.folder,
            env={**self.environment, "SESSION": session},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str, seconds: float) -> str:
        """Run a command and return its output.

        Raises:
            AssertionError: it failed; contains its output.
            TimeoutExpired: it took too long.
        """
        with self.start(command) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except BaseException:  # Ctrl-C too: the command is in its own session
                os.killpg(process.pid, signal.SIGKILL)
                raise
        self.record(command, output)
        assert process.returncode == 0, f"{command}\n{output[-6000:]}"
        return output

    def record(self, command: str, output: str) -> None:
        """Append a command and its output to the log."""
        with self.log.open("a") as log:
            log.write(f"$ {command}\n{output}\n")
