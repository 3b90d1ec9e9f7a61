"""Stacks on the twin whose workers take at least a fixed time for each sample.

All workers share the cores of this machine, so that a single worker trains about as fast as three, and a busy machine
trains more slowly. A file on the volume makes each worker take at least the same time for each sample.
Throughput then grows with the number of machines, as on separate machines.
"""

import threading
import time
from typing import Any

from cloudtwin.facade import shared_volume

from everstep.catalog.names import MOUNT
from tests.e2e.life_cycle import LifeCycle

FOLDER = "pace"
"""Folder of the file, on the volume."""

PACE = '''
import importlib.abc, importlib.util, os, sys, time

class Finder(importlib.abc.MetaPathFinder):
    """Finds the module of batches once, and slows its micro-batches."""

    def find_spec(self, name, path, target=None):
        if name != "everstep.elastic.training.batch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), slow(module.Batch))
        return spec

def slow(batch):
    begin, end, seconds = batch._begin, batch._end, float(os.environ["PACE_SECONDS"])

    def timed(self, microbatch):
        self._pace_began = time.monotonic()
        return begin(self, microbatch)

    def paced(self, microbatch):
        left = self._pace_began + len(microbatch.ids) * seconds - time.monotonic()
        time.sleep(max(left, 0.0) if not self.is_warm_up else 0.0)
        return end(self, microbatch)

    batch._begin, batch._end = timed, paced

sys.meta_path.insert(0, Finder())
'''
"""`sitecustomize.py` of the workers: a micro-batch takes at least a fixed time for each sample."""


def paced_job(sample_seconds: float) -> dict[str, Any]:
    """Return the keys of the section `job` that make each worker take at least `sample_seconds` for a sample."""
    return {
        "env": {
            "PYTHONPATH": f"{MOUNT}/{FOLDER}:/workspace",
            "PACE_SECONDS": str(sample_seconds),
        }
    }


class PacedCycle(LifeCycle):
    """The life cycle of a stack with `paced_job`."""

    def up_paced(self, seconds: float) -> None:
        """Bring the stack up, and write the file that paces workers to the volume before they start."""
        up = threading.Thread(
            target=self.record,
            args=("up", "up", "--detach", "--stack", self.stack, "--twin"),
            kwargs={"seconds": seconds},
        )
        up.start()
        is_written = False
        while up.is_alive():
            if not is_written and (volume := shared_volume(self.twin)) and volume.is_dir():
                (volume / FOLDER).mkdir(exist_ok=True)
                (volume / FOLDER / "sitecustomize.py").write_text(PACE)
                is_written = True
            time.sleep(0.2)
        assert "up" in self.results, f"not within {seconds} s: everstep up"
        result = self.results["up"]
        assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
        assert is_written, "the stack has no volume"
