"""The Pulumi engine: its environment and its commands.

A stack on this machine or on a cluster has its state in Everstep's folder. Backend, login, passphrase and stack file
of a stack in a real cloud are the user's, as Pulumi itself resolves them, so that `pulumi` and `everstep` act on the
same stack.

The engine runs as the program `pulumi`, not through Pulumi's Automation API: a user can then repeat every
step by hand (`everstep pulumi ...` sets the same environment), and the command line starts without importing
an SDK. Progress comes from the engine's event log, which the Automation API reads too.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtwin.facade import engine_backend_url

from everstep.cli import bytecode
from everstep.cli.child_process import signal_with_parent
from everstep.cli.engine.events import EventLog, ResourceCounts
from everstep.cli.engine.failures import engine_failure
from everstep.cli.engine.interrupted import takeover_variables
from everstep.cli.engine.stack_file import copy_stack_file
from everstep.cli.engine.workspace import Workspace, passphrase_file
from everstep.cli.termination import Terminated
from everstep.errors import EverstepError
from everstep.files import write_atomically
from everstep.progress import Progress, Step

READS_CONFIG_FILE = frozenset({"up", "update", "preview", "refresh", "destroy"})
"""Commands of Pulumi that read the copy of the stack file."""

READS_POLICY_PACKS = frozenset({"up", "update", "preview"})
"""Commands of Pulumi that check policy packs."""

PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
"""Variables with which users set their own passphrase."""

PLAIN_STATE = {
    "PULUMI_DIY_BACKEND_GZIP": "false",
    "PULUMI_DIY_BACKEND_ZSTD": "false",
    "PULUMI_DIY_BACKEND_LEGACY_LAYOUT": "false",
}
"""Variables that keep the state in the plain JSON file `state_file`, whatever a user sets for another backend."""

NO_STACK = "no stack named"
"""Text of Pulumi's error for a stack that the backend does not have."""

Deployment = Mapping[str, Any]
"""The state of a stack: the value of `deployment` that `pulumi stack export` prints."""

POLL_SECONDS = 0.1
STOP_SECONDS = 60
"""Time for an engine that was interrupted twice to save its state."""


@dataclass(frozen=True)
class Engine:
    """Pulumi, ready to work on one workspace.

    Attributes:
        workspace: the stack.
        program: path of `pulumi`.
        environment: environment variables of the program.
        policy_packs: folders of policy packs to check the stack with.
        has_user_backend: True if backend, login and stack file are the user's, as for every real cloud.
    """

    workspace: Workspace
    program: Path
    environment: Mapping[str, str]
    policy_packs: tuple[Path, ...] = ()
    has_user_backend: bool = False

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the full command line, with the copy of the stack file and the policy packs where they apply."""
        command = [str(self.program), "--cwd", str(self.workspace.project), *arguments]
        verb = next((word for word in arguments if not word.startswith("-")), "")
        has_config_file = any(word.startswith("--config-file") for word in arguments)
        if verb in READS_CONFIG_FILE and not has_config_file and not self.has_user_backend:
            copy = copy_stack_file(self.workspace, salt_of(self.deployment()))
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
        if self.deployment() is None:
            return {}
        values = json.loads(self.output_of("stack", "output", "--json"))
        return values if isinstance(values, dict) else {}

    def deployment(self, stack: str = "") -> Deployment | None:
        """Return the state of this stack, or of another one in the user's backend; None if the backend has none.

        Raises:
            EverstepError: the user is not logged in, or the backend cannot be read.
        """
        if not self.has_user_backend:
            return read_deployment(self.workspace)
        stack = stack or self.workspace.stack
        try:
            exported = self.run_on_state("stack", "export", "--stack", stack)
        except EverstepError as error:
            if NO_STACK in error.fix:
                return None
            raise EverstepError(
                f"the state of stack {stack} cannot be read",
                f"{error.fix}\nLog in to the backend that has the stack: `pulumi login URL`.",
            ) from None
        deployment: Deployment = json.loads(exported).get("deployment") or {}
        return deployment

    def require_stack(self) -> Deployment:
        """Return the state of a stack, which must exist in the user's backend; Everstep creates it in its own.

        Raises:
            EverstepError: the backend does not have the stack, or cannot be read.
        """
        deployment = self.deployment()
        if deployment is not None or not self.has_user_backend:
            return deployment or {}
        stack = self.workspace.stack
        raise EverstepError(
            f"there is no stack {stack} in the backend {self.backend()}",
            "If another backend has it, log in there first: `pulumi login URL`.\n"
            f"If it is new: `pulumi stack init {stack} --secrets-provider PROVIDER`. docs/eks.md and docs/aks.md "
            "have the backend and the provider of a cloud.",
        )

    def backend(self) -> str:
        """Return the URL of the user's backend."""
        account = json.loads(self.run_on_state("whoami", "--verbose", "--json"))
        return str(account.get("url"))

    def other_stacks(self) -> list[str]:
        """Return the names of the project's other stacks in the user's backend."""
        names = [
            str(entry["name"]) for entry in json.loads(self.run_on_state("stack", "ls", "--json"))
        ]
        return [name for name in names if name.rpartition("/")[2] != self.workspace.stack]

    def up(self, progress: Progress, targets: Sequence[str] = ()) -> ResourceCounts:
        """Bring the stack to the state that the program declares.

        Args:
            progress: receiver of the engine's progress.
            targets: URNs or URN patterns of the only resources to bring up; empty for all.

        Raises:
            EverstepError: the update failed; the error contains the engine's diagnostics.
        """
        flags = ["--skip-preview", *(f"--target={target}" for target in targets)]
        action = "Bringing up a part of the stack" if targets else "Bringing up the stack"
        return self._update("up", flags, action, progress)

    def destroy(self, progress: Progress) -> ResourceCounts:
        """Destroy everything in the stack, from its state: the stack file may be invalid.

        Raises:
            EverstepError: Pulumi failed; the error contains the engine's diagnostics.
        """
        copy = copy_stack_file(self.workspace, salt_of(self.deployment()), allow_invalid=True)
        flags = ["--skip-preview", f"--config-file={copy}"]
        return self._update("destroy", flags, "Destroying the stack", progress)

    def _update(
        self, verb: str, flags: list[str], action: str, progress: Progress
    ) -> ResourceCounts:
        deployment = self.deployment()
        log = self.workspace.engine / f"{verb}.events.jsonl"
        output = self.workspace.engine / f"{verb}.log"
        log.unlink(missing_ok=True)
        arguments = [verb, "--yes", "--non-interactive", "--color=never", *flags]
        with progress.step(f"{action} {self.workspace.stack}") as step, output.open("wb") as sink:
            process = subprocess.Popen(
                [*interrupt_with_parent(), *self.command([*arguments, "--event-log", str(log)])],
                env={
                    **self.environment,
                    **(takeover_variables(deployment) if verb == "up" else {}),
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
        return [
            str(resource["urn"]).rpartition("::")[2]
            for resource in (self.deployment() or {}).get("resources") or ()
            if resource.get("protect")
        ]

    def remove_stack(self) -> None:
        """Remove the stack and its state, even if it still lists resources; keep the stack file.

        An empty stack in the user's backend is kept with its history, which is the user's.
        """
        if not self.has_user_backend and state_file(self.workspace).exists():
            self.run_on_state(
                "stack", "rm", "--yes", "--force", "--preserve-config", self.workspace.stack
            )

    def run_on_state(self, *arguments: str) -> str:
        """Run a short command that needs only the state, in a scratch project without a stack file.

        With the user's backend it runs in the project, whose Pulumi.yaml may name the backend.

        Raises:
            EverstepError: the command failed; the error contains its output.
        """
        environment = {k: v for k, v in self.environment.items() if k != "PULUMI_STACK"}
        if self.has_user_backend:
            command = [str(self.program), "--cwd", str(self.workspace.project), *arguments]
            return _output_of([*command, "--non-interactive"], environment)
        scratch = self.workspace.engine / "scratch"
        write_atomically(scratch / "Pulumi.yaml", "name: everstep\nruntime: python\n")
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
    """Show events until the engine ends; after Ctrl-C or an error let it finish running operations first."""
    try:
        while True:
            try:
                process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                events.advance()
    except BaseException:  # also an error of the display, which must not leave the engine behind
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # a closed terminal
            step.note(
                "interrupted: Pulumi finishes running operations, which may take minutes, and saves its state; "
                "Ctrl-C again ends it earlier"
            )
        _wait_for_state(process)
        raise
    events.advance()


def _wait_for_state(process: "subprocess.Popen[bytes]") -> None:
    """Wait until an interrupted engine has saved its state; a second Ctrl-C makes it abandon running operations."""
    try:
        process.wait()  # the creation of a cluster takes ten minutes
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def interrupt_with_parent() -> list[str]:
    """Return a command prefix that interrupts the engine when its parent is killed."""
    return signal_with_parent("INT")


def run_in_foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the engine on this terminal and return its exit code; let it end in order if this process is to end."""
    with subprocess.Popen([*interrupt_with_parent(), *command], env=environment) as process:
        try:
            return process.wait()
        except Terminated:  # only Ctrl-C reaches the engine too
            process.send_signal(signal.SIGINT)
            _wait_for_state(process)
            raise
        except BaseException:
            process.kill()
            raise


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


def open_user_engine(
    workspace: Workspace,
    program: Path,
    variables: Mapping[str, str],
    policy_packs: Sequence[Path] = (),
) -> Engine:
    """Return the engine for a real cloud: backend, login, passphrase and stack are the user's."""
    workspace.engine.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **user_environment(workspace), **variables}
    return Engine(workspace, program, environment, tuple(policy_packs), has_user_backend=True)


def user_environment(workspace: Workspace) -> dict[str, str]:
    """Return the variables that Everstep adds to the environment of a user's own Pulumi."""
    return {"PULUMI_STACK": workspace.stack, **bytecode.settings()}


def engine_environment(workspace: Workspace, kubeconfig: Path | None) -> dict[str, str]:
    """Return the variables with which `pulumi` works on a workspace; a user's passphrase is kept."""
    folder = workspace.engine
    backend = folder / "state"
    backend.mkdir(parents=True, exist_ok=True)
    variables = {
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": engine_backend_url(backend),
        "PULUMI_STACK": workspace.stack,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **PLAIN_STATE,
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


def read_deployment(workspace: Workspace) -> Deployment | None:
    """Return the state of a stack in Everstep's own folder; None if there is none or it cannot be read."""
    try:
        state = json.loads(state_file(workspace).read_text())
    except (OSError, ValueError):
        return None
    for key in ("checkpoint", "latest"):
        if not isinstance(state, dict):
            return None
        state = state.get(key) or {}
    return state if _has_resources(state) else None


def _has_resources(deployment: object) -> bool:
    """Return True for a state whose resources are what the engine writes, an empty state included."""
    if not isinstance(deployment, dict):
        return False
    resources = deployment.get("resources") or []
    return isinstance(resources, list) and all(isinstance(item, dict) for item in resources)


def salt_of(deployment: Deployment | None) -> str | None:
    """Return the encryption salt of a state; None if it has none."""
    providers = (deployment or {}).get("secrets_providers") or {}
    salt = (providers.get("state") or {}).get("salt")
    return str(salt) if salt else None


def _create_stack(engine: Engine) -> None:
    """Create the stack; its salt goes to a scratch project, not to the user's stack file."""
    if state_file(engine.workspace).exists():
        return
    try:
        engine.run_on_state("stack", "init", engine.workspace.stack)
    except EverstepError:
        if not state_file(engine.workspace).exists():  # else another command created it first
            raise
