"""Where a run's files are read from: the folder they lie in, or a pod that has the volume mounted.

On the twin the volume is a folder of this machine, so the run can be followed while every worker
is gone. On a cluster of the user's own the files are read through the API server from a running
worker.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from everstep.cli.cluster import Cluster
from everstep.cli.run import Run, assemble
from everstep.errors import EverstepError

MOUNT = "/everstep"
"""Where a worker has the volume mounted."""

_LISTING = """
for file in {run}/journal/*.jsonl {run}/result.json; do
  [ -f "$file" ] && printf '\\n\\036%s\\n' "${{file##*/}}" && cat "$file"
done
exit 0
"""
"""Prints each file after a line that begins with the record separator, never bare in JSON."""


class Source(Protocol):
    """Somewhere a run can be read from, again and again."""

    def read(self) -> Run:
        """The run as far as it is written."""


@dataclass
class Folder:
    """A run whose files lie in a folder of this machine."""

    run: Path
    events: Path
    _texts: dict[Path, tuple[tuple[int, int], str]] = field(default_factory=dict)

    def read(self) -> Run:
        """Read what changed since the last time; a file that is not there yet is empty."""
        journals = {
            path.stem: self._text(path) for path in sorted(self.run.glob("journal/*.jsonl"))
        }
        return assemble(journals, self._text(self.events), self._text(self.run / "result.json"))

    def _text(self, path: Path) -> str:
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
            known = self._texts.get(path)
            if known is None or known[0] != version:
                known = (version, path.read_text(errors="replace"))
                self._texts[path] = known
        except FileNotFoundError:
            return ""
        return known[1]


@dataclass
class Worker:
    """A run read through the API server from whichever of its workers is running."""

    cluster: Cluster
    job: str
    events: Path
    _last: Run = field(default_factory=Run)

    def read(self) -> Run:
        """Read all files; while no worker runs, what was read last."""
        pod = self.cluster.running_worker(self.job)
        if pod is None:
            return self._last
        listing = self.cluster.shell(pod, _LISTING.format(run=f"{MOUNT}/runs/{self.job}"))
        files = split_listing(listing)
        result = files.pop("result.json", "")
        journals = {name.removesuffix(".jsonl"): text for name, text in files.items()}
        events = self.events.read_text() if self.events.exists() else ""
        self._last = assemble(journals, events, result)
        return self._last


def split_listing(listing: str) -> dict[str, str]:
    """Take the files of a listing apart, by name."""
    files = {}
    for part in listing.split("\036")[1:]:
        name, _, text = part.partition("\n")
        files[name.strip()] = text
    return files


def copy_result(run: Path, destination: Path) -> None:
    """Copy a run's checkpoints, journals and result out of the volume.

    Raises:
        EverstepError: the destination is there already or cannot be written.
    """
    import shutil

    if not run.is_dir():
        raise EverstepError(f"there is no run to keep: {run} is not there")
    if destination.exists():
        raise EverstepError(
            f"{destination} is there already", "Name a folder that does not exist yet."
        )
    aside = destination.with_name(f".{destination.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(run, aside)
        aside.rename(destination)
    except OSError as error:
        raise EverstepError(f"the run cannot be copied to {destination}: {error}") from None
