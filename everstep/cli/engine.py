"""The Pulumi engine: its environment, its commands, its lock.

The engine is run as the program `pulumi`, not through Pulumi's Automation API: a person can then
repeat any step by hand (`everstep pulumi ...` sets the same environment), and the command line
starts without importing an SDK. Progress comes from the engine's event log, the same that the
Automation API reads.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.cli import bytecode
from everstep.cli.engine_events import EventLog, Tally
from everstep.cli.workspace import Workspace, copy_stack_file, passphrase_file, write_whole
from everstep.errors import EverstepError
from everstep.progress import Progress, Step

TAKES_CONFIG_FILE = frozenset({"up", "update", "preview", "refresh", "destroy"})
"""Commands of Pulumi that evaluate the stack, and so read the stack file's copy."""

PASSPHRASE = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
"""Variables by which a user gives a passphrase of their own."""

_NOT_PULLED = re.compile(r"ErrImagePull|ImagePullBackOff|ErrImageNeverPull|InvalidImageName")
_IMAGE = re.compile(r"""image \\?"([^"\\]+)\\?\"""")

POLL_SECONDS = 0.1
STOP_SECONDS = 60
"""How long an interrupted engine may take to finish what is in flight and save its state."""


@dataclass(frozen=True)
class Engine:
    """Pulumi, ready to work on one workspace."""

    workspace: Workspace
    program: Path
    environment: Mapping[str, str]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The full command line, with the stack file's copy where the command reads one."""
        command = [str(self.program), "--cwd", str(self.workspace.project), *arguments]
        verb = next((word for word in arguments if not word.startswith("-")), "")
        named = any(word.startswith("--config-file") for word in arguments)
        if verb in TAKES_CONFIG_FILE and not named:
            copy = copy_stack_file(self.workspace, read_salt(self.workspace))
            command += ["--config-file", str(copy)]
        return command

    def ask(self, *arguments: str) -> str:
        """Run a short command and give its output.

        Raises:
            EverstepError: the command failed; with everything it said.
        """
        return _ask(self.command(arguments), self.environment)

    def outputs(self) -> Mapping[str, object]:
        """The stack's outputs, secrets masked; empty where it has none yet."""
        if not state_file(self.workspace).exists():
            return {}
        values = json.loads(self.ask("stack", "output", "--json"))
        return values if isinstance(values, dict) else {}

    def up(self, progress: Progress) -> Tally:
        """Bring the stack to what the program says."""
        return self._update("up", ["--skip-preview"], "Bringing up the stack", progress)

    def destroy(self, progress: Progress) -> Tally:
        """Destroy everything in the stack; its state says what, so its stack file may be faulty."""
        copy = copy_stack_file(self.workspace, read_salt(self.workspace), mended=True)
        flags = ["--skip-preview", f"--config-file={copy}"]
        return self._update("destroy", flags, "Destroying the stack", progress)

    def _update(self, verb: str, flags: list[str], what: str, progress: Progress) -> Tally:
        log = self.workspace.engine / f"{verb}.events.jsonl"
        output = self.workspace.engine / f"{verb}.log"
        log.unlink(missing_ok=True)
        arguments = [verb, "--yes", "--non-interactive", "--color=never", *flags]
        with progress.step(f"{what} {self.workspace.stack}") as step, output.open("wb") as sink:
            process = subprocess.Popen(
                [*dies_with_us(), *self.command([*arguments, "--event-log", str(log)])],
                env={
                    **self.environment,
                    "PULUMI_DEBUG_COMMANDS": "true",
                },  # or --event-log is unknown
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us only; we pass it on once
            )
            events = EventLog(log, step)
            _watch(process, events, step)
            if process.returncode:
                raise failure(verb, self.workspace, events, output)
            return events.tally()

    def protected(self) -> list[str]:
        """The names of the resources that the state says must not be destroyed."""
        state = json.loads(self.aside("stack", "export", "--stack", self.workspace.stack))
        resources = (state.get("deployment") or {}).get("resources") or ()
        return [str(one["urn"]).rpartition("::")[2] for one in resources if one.get("protect")]

    def remove_stack(self) -> None:
        """Forget the stack and its state, whatever it still lists; stack files stay."""
        if state_file(self.workspace).exists():
            self.aside("stack", "rm", "--yes", "--force", "--preserve-config", self.workspace.stack)

    def aside(self, *arguments: str) -> str:
        """Run a short command that works on the state alone, where no stack file can disturb it.

        Raises:
            EverstepError: the command failed; with everything it said.
        """
        scratch = self.workspace.engine / "scratch"
        write_whole(scratch / "Pulumi.yaml", "name: everstep\nruntime: python\n")
        environment = {k: v for k, v in self.environment.items() if k != "PULUMI_STACK"}
        return _ask([str(self.program), "--cwd", str(scratch), *arguments], environment)


def _ask(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the engine, which is the first word; the words after `--cwd FOLDER` name the command."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EverstepError(
            f"`pulumi {' '.join(command[3:])}` failed", (done.stderr or done.stdout).strip()
        )
    return done.stdout


def _watch(process: "subprocess.Popen[bytes]", events: EventLog, step: Step) -> None:
    """Show events until the engine ends; the first Ctrl-C lets it finish what is in flight."""
    try:
        while True:
            try:
                process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                events.advance()
    except KeyboardInterrupt:
        step.note("interrupted: letting Pulumi finish what is in flight and save its state")
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
        raise
    events.advance()


def failure(verb: str, workspace: Workspace, events: EventLog, output: Path) -> EverstepError:
    """What the engine said went wrong, in full."""
    said = "\n".join(events.errors) or output.read_text(errors="replace").strip()
    images = images_not_pulled(said)
    if images:
        said += (
            f"\n\nNo node can get the image {', '.join(images)}. Mend its name in "
            f"{workspace.stack_file}, or push it to where the nodes can pull it."
        )
    return EverstepError(
        f"`pulumi {verb}` of stack {workspace.stack} failed",
        f"{said}\n\nAll of its output is in {output}. What was made so far is kept: mend the cause "
        f"and run the same command again.",
    )


def images_not_pulled(said: str) -> list[str]:
    """The images that pods wait for in vain, as the kubelet names them in what the engine said."""
    lines = [line for line in said.splitlines() if _NOT_PULLED.search(line)]
    found = [image for line in lines for image in _IMAGE.findall(line)]
    return list(dict.fromkeys(found))


def dies_with_us() -> list[str]:
    """A prefix that interrupts the engine when this process is killed; needs util-linux."""
    return ["setpriv", "--pdeathsig", "INT", "--"] if shutil.which("setpriv") else []


# --- environment --------------------------------------------------------------------------------


def open_engine(
    workspace: Workspace, program: Path, kubeconfig: Path | None, plugins: Mapping[str, str]
) -> Engine:
    """Make the engine ready: folders, passphrase, plugins, and the stack itself if it is new."""
    engine = Engine(
        workspace, program, {**os.environ, **settings(workspace, kubeconfig), **plugins}
    )
    _create_stack(engine)
    return engine


def settings(workspace: Workspace, kubeconfig: Path | None) -> dict[str, str]:
    """The environment that makes `pulumi` work on this workspace; a user's passphrase stays."""
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
    """Where the backend keeps the stack."""
    return (
        workspace.engine / "state" / ".pulumi" / "stacks" / "everstep" / f"{workspace.stack}.json"
    )


def read_salt(workspace: Workspace) -> str | None:
    """The salt of the state's secrets."""
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
        engine.aside("stack", "init", engine.workspace.stack)
    except EverstepError:
        if not state_file(engine.workspace).exists():  # else another command was quicker
            raise


# --- lock ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lock:
    """A lock that an engine holds, or held when it was killed, on the stack."""

    path: Path
    pid: int
    host: str

    @property
    def holder_lives(self) -> bool:
        """Whether the process that took it may still run; on another host one cannot know."""
        if self.host and self.host != socket.gethostname():
            return True
        return Path(f"/proc/{self.pid}").exists() if Path("/proc/self").exists() else True


def locks(workspace: Workspace) -> list[Lock]:
    """The locks on the stack."""
    folder = workspace.engine / "state" / ".pulumi" / "locks"
    return [
        lock
        for path in sorted(folder.rglob(f"{workspace.stack}/*.json"))
        if (lock := _read_lock(path)) is not None
    ]


def _read_lock(path: Path) -> Lock | None:
    try:
        content = json.loads(path.read_text())
        return Lock(path, int(content["pid"]), str(content.get("hostname", "")))
    except (OSError, ValueError, KeyError):
        return None


def release_dead_locks(engine: Engine) -> list[Lock]:
    """Run `pulumi cancel` where the process that held the lock is gone; say which those were.

    Raises:
        EverstepError: a process that still runs holds the lock.
    """
    held = locks(engine.workspace)
    for lock in held:
        if lock.holder_lives:
            raise EverstepError(
                f"process {lock.pid} is changing the stack {engine.workspace.stack} right now",
                f"Wait until it is done, or stop it: `kill -INT {lock.pid}`; then run this again.",
            )
    if held:
        engine.aside("cancel", "--yes", engine.workspace.stack)
    return held
