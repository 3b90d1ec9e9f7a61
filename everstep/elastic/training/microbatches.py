"""The division of a worker's share of a step into micro-batches, and the bound on their size.

The global batch is constant, so the share of a worker grows when nodes leave. Its memory does not:
it computes the share in micro-batches of a bounded number of samples. The user may give a bound, and
each out-of-memory error halves it. A bound found this way is saved for each device type in the
run's folder, so that the next process on such a device starts with it.
"""

import contextlib
import itertools
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from everstep.elastic.data_order.leftover import Span, merge_spans
from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

LIMITS_FILE = "microbatch.json"


@dataclass(frozen=True)
class Microbatch:
    """Samples of one forward and backward pass.

    Attributes:
        spans: units of the step, in order.
        ids: samples of these units.
        last: whether it is the last micro-batch of this worker's share.
    """

    spans: tuple[Span, ...]
    ids: Ids
    last: bool


def split_spans(spans: Iterable[Span], bound: int | None) -> list[tuple[Span, ...]]:
    """Split units into the fewest groups of at most `bound` units; sizes differ by one at most."""
    spans = merge_spans(spans)
    units = sum(end - start for start, end in spans)
    if not units:
        return []
    count = -(-units // bound) if bound else 1
    edges = [units * number // count for number in range(count + 1)]
    return [_cut(spans, first, stop) for first, stop in itertools.pairwise(edges)]


def _cut(spans: Iterable[Span], first: int, stop: int) -> tuple[Span, ...]:
    """Return the units from number `first` up to, but not including, number `stop`, counted through all spans."""
    selected_spans, preceding_units = list[Span](), 0
    for start, end in spans:
        shift = start - preceding_units
        selected_spans.append((max(start, first + shift), min(end, stop + shift)))
        preceding_units += end - start
    return merge_spans(span for span in selected_spans if span[0] < span[1])


class MicrobatchLimit:
    """The bound on the size of micro-batches, so that they fit a device's memory.

    Args:
        bound: the user's bound, in samples; None to find it.
        folder: folder of the run, where found bounds are saved; None to save no bound.
        device: device on which the model computes.

    Attributes:
        samples: maximum number of samples in a micro-batch; None for no bound.
    """

    def __init__(self, bound: int | None, folder: Path | None, device: torch.device) -> None:
        self._file = folder / LIMITS_FILE if folder else None
        self._device_name = device_name(device)
        self.samples = min(
            (n for n in (bound, self._read().get(self._device_name)) if n), default=None
        )

    def lower(self, failed_samples: int) -> int:
        """Halve the bound after micro-batches of `failed_samples` samples did not fit; return the new bound.

        Raises:
            EverstepError: a single sample does not fit.
        """
        if failed_samples <= 1:
            raise EverstepError(
                f"one sample does not fit into the memory of this device, {self._device_name}",
                "Use a smaller model or smaller samples, or a device with more memory.",
            )
        self.samples = min(failed_samples // 2, self.samples or failed_samples)
        log.warning(
            "%d samples do not fit into the memory of %s: computing at most %d at a time",
            *(failed_samples, self._device_name, self.samples),
        )
        self._save(self.samples)
        return self.samples

    def _read(self) -> dict[str, int]:
        try:
            bounds = json.loads(self._file.read_text()) if self._file else {}
        except (OSError, ValueError):
            return {}
        items = bounds.items() if isinstance(bounds, dict) else ()
        return {name: bound for name, bound in items if isinstance(bound, int) and bound > 0}

    def _save(self, bound: int) -> None:
        if self._file is None:
            return
        bounds = self._read()
        bounds[self._device_name] = min(bound, bounds.get(self._device_name, bound))
        with contextlib.suppress(OSError):  # the next process has to determine the bound again
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_name(
                f".{self._file.name}-{os.uname().nodename}-{os.getpid()}"
            )
            temporary.write_text(json.dumps(bounds, indent=1))
            temporary.replace(self._file)


def device_name(device: torch.device) -> str:
    """Return the type of a device, such as `NVIDIA A100-SXM4-80GB`, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
