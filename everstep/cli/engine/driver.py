"""The Pulumi engine: its environment and its commands.

The engine runs as the program `pulumi`, not through Pulumi's Automation API: a user can then repeat every
step by hand (`everstep pulumi ...` sets the same environment), and the command line starts without importing
an SDK. Progress comes from the engine's event log, which the Automation API reads too.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.facade import TwinError

from everstep.cli import bytecode
from everstep.cli.engine.events import EventLog, ResourceCounts
from everstep.cli.engine.failures import engine_failure
from everstep.cli.engine.interrupted import takeover_variables
from everstep.cli.engine.stack_file import copy_stack_file
from everstep.cli.engine.workspace import Workspace, passphrase_file
from everstep.errors import EverstepError
from everstep.files import write_atomically
from everstep.progress import Progress, Step

READS_CONFIG_FILE = frozenset({"up", "update", "preview", "refresh", "destroy"})
"""Commands of Pulumi that read the copy of the stack file."""

READS_POLICY_PACKS = frozenset({"up", "update", "preview"})
"""Commands of Pulumi that check policy packs."""

PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
"""Variables with which users set their own passphrase."""

POLL_SECONDS = 0.1
STOP_SECONDS = 60
"""Time that an interrupted engine has to finish running operations and save its state."""


@dataclass(frozen=True)
class Engine:
    """Pulumi, ready to work on one workspace.

    Attributes:
        workspace: the stack.
        program: path of `pulumi`.
        environment: environment variables of the program.
        policy_packs: folders of policy packs to check the stack with.
    """

    workspace: Workspace
    program: Path
    environment: Mapping[str, str]
    policy_packs: tuple[Path, ...] = ()

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the full command line, with stack file copy and policy packs where they apply."""
        command = [str(self.program), "--cwd", str(self.workspace.project), *arguments]
        verb = next((word for word in arguments if not word.startswith("-")), "")
        has_config_file = any(word.startswith("--config-file") for word in arguments)
        if verb in READS_CONFIG_FILE and not has_config_file:
            copy = copy_stack_file(self.workspace, read_salt(self.workspace))
            command += ["--config-file", str(copy)]
        if verb in READS_POLICY_PACKS:
            for pack in self.policy_packs:
                command += ["--policy-pack", str(pack)]
        return command

    def output_of(self, *arguments: str) -> str:
        """Run a short command and return its output.

        Raises:
            EverstepError: the command failed; the error contains its output.
        """
        return _output_of(self.command(arguments), self.environment)

    def outputs(self) -> Mapping[str, object]:
        """Return the stack's outputs with secrets masked; empty before the first `up`."""
        if not state_file(self.workspace).exists():
            return {}
        values = json.loads(self.output_of("stack", "output", "--json"))
        return values if isinstance(values, dict) else {}

    def up(self, progress: Progress, targets: Sequence[str] = ()) -> ResourceCounts:
        """Bring the stack to the state that the program declares.

        Args:
            progress: receiver of the engine's progress.
            targets: URNs or URN patterns of the only resources to bring up; empty for all.
        """
        flags = ["--skip-preview", *(f"--target={target}" for target in targets)]
        action = "Bringing up a part of the stack" if targets else "Bringing up the stack"
        return self._update("up", flags, action, progress)

    def destroy(self, progress: Progress) -> ResourceCounts:
        """Destroy everything in the stack, from its state: the stack file may be invalid."""
        copy = copy_stack_file(self.workspace, read_salt(self.workspace), allow_invalid=True)
        flags = ["--skip-preview", f"--config-file={copy}"]
        return self._update("destroy", flags, "Destroying the stack", progress)

    def _update(
        self, verb: str, flags: list[str], action: str, progress: Progress
    ) -> ResourceCounts:
        log = self.workspace.engine / f"{verb}.events.jsonl"
        output = self.workspace.engine / f"{verb}.log"
        log.unlink(missing_ok=True)
        arguments = [verb, "--yes", "--non-interactive", "--color=never", *flags]
        with progress.step(f"{action} {self.workspace.stack}") as step, output.open("wb") as sink:
            process = subprocess.Popen(
                [*interrupt_with_parent(), *self.command([*arguments, "--event-log", str(log)])],
                env={
                    **self.environment,
                    **(takeover_variables(state_file(self.workspace)) if verb == "up" else {}),
                    "PULUMI_DEBUG_COMMANDS": "true",  # otherwise the option --event-log does not exist
                },
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which forwards it once
            )
            events = EventLog(log, step)
            _wait(process, events, step)
            if process.returncode:
                raise engine_failure(verb, self.workspace, events, output)
            return events.counts()

    def protected_resources(self) -> list[str]:
        """Return the names of the resources that are protected in the state."""
        state = json.loads(self.run_on_state("stack", "export", "--stack", self.workspace.stack))
        resources = (state.get("deployment") or {}).get("resources") or ()
        return [
            str(resource["urn"]).rpartition("::")[2]
            for resource in resources
            if resource.get("protect")
        ]

    def remove_stack(self) -> None:
        """Remove the stack and its state, even if it still lists resources; keep the stack file."""
        if state_file(self.workspace).exists():
            self.run_on_state(
                "stack", "rm", "--yes", "--force", "--preserve-config", self.workspace.stack
            )

    def run_on_state(self, *arguments: str) -> str:
        """Run a short command that needs only the state, in a scratch project without a stack file.

        Raises:
            EverstepError: the command failed; the error contains its output.
        """
        scratch = self.workspace.engine / "scratch"
        write_atomically(scratch / "Pulumi.yaml", "name: everstep\nruntime: python\n")
        environment = {k: v for k, v in self.environment.items() if k != "PULUMI_STACK"}
        return _output_of([str(self.program), "--cwd", str(scratch), *arguments], environment)


def _output_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command line of the form PROGRAM --cwd FOLDER ARGUMENTS... and return its output."""
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise EverstepError(
            f"`pulumi {' '.join(command[3:])}` failed",
            (process.stderr or process.stdout).strip(),
        )
    return process.stdout


def _wait(process: "subprocess.Popen[bytes]", events: EventLog, step: Step) -> None:
    """Show events until the engine ends; on Ctrl-C let it finish running operations first."""
    try:
        while True:
            try:
                process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                events.advance()
    except KeyboardInterrupt:
        step.note("interrupted: waiting for Pulumi to finish running operations and save its state")
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
        raise
    events.advance()


def interrupt_with_parent() -> list[str]:
    """Return a command prefix that interrupts a process when its parent is killed; needs util-linux."""
    return ["setpriv", "--pdeathsig", "INT", "--"] if shutil.which("setpriv") else []


# --- environment --------------------------------------------------------------------------------


def open_engine(
    workspace: Workspace,
    program: Path,
    kubeconfig: Path | None,
    variables: Mapping[str, str],
    policy_packs: Sequence[Path] = (),
) -> Engine:
    """Return the engine with its folders, passphrase and plugins, and create the stack if it is new."""
    environment = {**os.environ, **engine_environment(workspace, kubeconfig), **variables}
    engine = Engine(workspace, program, environment, tuple(policy_packs))
    _create_stack(engine)
    return engine


def engine_environment(workspace: Workspace, kubeconfig: Path | None) -> dict[str, str]:
    """Return the variables with which `pulumi` works on a workspace; a user's passphrase is kept."""
    folder = workspace.engine
    backend = folder / "state"
    backend.mkdir(parents=True, exist_ok=True)
    variables = {
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_STACK": workspace.stack,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **bytecode.settings(),
    }
    if "PULUMI_CONFIG_PASSPHRASE" not in os.environ:
        variables["PULUMI_CONFIG_PASSPHRASE_FILE"] = os.environ.get(
            "PULUMI_CONFIG_PASSPHRASE_FILE", str(passphrase_file(workspace))
        )
    if kubeconfig is not None:
        variables["KUBECONFIG"] = str(kubeconfig)
    return variables


def state_file(workspace: Workspace) -> Path:
    """Return the path of the stack's state in the backend."""
    return (
        workspace.engine / "state" / ".pulumi" / "stacks" / "everstep" / f"{workspace.stack}.json"
    )


def read_salt(workspace: Workspace) -> str | None:
    """Return the encryption salt of the state; None if there is no state."""
    try:
        state = json.loads(state_file(workspace).read_text())
    except (OSError, ValueError):
        return None
    checkpoint = state.get("checkpoint", {}).get("latest") or {}
    salt = (checkpoint.get("secrets_providers") or {}).get("state", {}).get("salt")
    return str(salt) if salt else None


def _create_stack(engine: Engine) -> None:
    """Create the stack; its salt goes to a scratch project, not to the user's stack file."""
    if state_file(engine.workspace).exists():
        return
    try:
        engine.run_on_state("stack", "init", engine.workspace.stack)
    except (EverstepError, TwinError):
        if not state_file(engine.workspace).exists():  # else another command created it first
            raise
