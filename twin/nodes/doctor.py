"""Finds what twins that no longer stand have left on this host; it changes nothing."""

from collections.abc import Iterator
from pathlib import Path

from twin.nodes import mounts, processes
from twin.nodes.cgroups import Tree
from twin.nodes.components import KEEPER
from twin.nodes.layout import Layout
from twin.nodes.model import Leftover
from twin.paths import state_root


def leftovers() -> list[Leftover]:
    """Return what is left of every twin on this host, whoever started it. A twin that stands is no leftover."""
    tree, root = Tree.here(), state_root()
    standing = set(standing_twins(tree))
    folders = [folder for folder in sorted(root.glob("*")) if folder.is_dir()]
    found = [_state(folder) for folder in folders if folder not in standing]
    identities = {Layout(folder).identity for folder in standing}
    for name in sorted(tree.named() - identities):
        found += [_process(pid) for pid in sorted(tree.processes(name))]
        found.append(_cgroup(name, tree))
    for target in mounts.below(root):
        if not any(target.is_relative_to(folder) for folder in standing):
            found.append(Leftover("mount", str(target), f"umount --lazy {target}"))
    return found


def standing_twins(tree: Tree) -> Iterator[Path]:
    """Yield the state folders of the twins that stand: their keeper lives and says which folder is its own."""
    for name in tree.named():
        for pid in tree.processes(f"{name}/{Layout.CONTROL_PLANE}"):
            state = state_of_keeper(_command(pid))
            if state and Layout(state).identity == name:
                known = processes.load(Layout(state).process(KEEPER))
                if known and known.pid == pid and known.alive:
                    yield state


def state_of_keeper(command: list[str]) -> Path | None:
    """Return the folder that a keeper serves, from its command line; None for any other program."""
    if command[1:3] != ["-m", "twin.nodes.keeper"] or len(command) != 4:
        return None
    return Path(command[3])


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return []


def _state(folder: Path) -> Leftover:
    command = f"EVERSTEP_STATE={folder.parent} EVERSTEP_TWIN={folder.name} everstep down"
    return Leftover("state", str(folder), command)


def _process(pid: int) -> Leftover:
    return Leftover("process", f"{pid} {' '.join(_command(pid))[:120]}", f"kill -9 {pid}")


def _cgroup(name: str, tree: Tree) -> Leftover:
    folders = " ".join(str(folder) for folder in tree.folders(name) if folder.exists())
    return Leftover("cgroup", name, f"find {folders} -depth -type d -exec rmdir {{}} ';'")
