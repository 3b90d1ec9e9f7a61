"""From bytes to what a model computes with. Apart from the rest, which needs no torch."""

import numpy as np
import torch

from trainer.augment import Images
from trainer.data.dataset import Dataset


class Prepare:
    """Turns uint8 images into what a model takes, on the model's own device.

    Images have 1 or 3 channels; grey ones are repeated, since every model here takes three.
    """

    def __init__(self, dataset: Dataset, device: torch.device, layout: torch.memory_format) -> None:
        self._device, self._layout = device, layout
        self._mean = torch.tensor(dataset.mean, device=device) * 255
        self._scale = 1 / (torch.tensor(dataset.deviation, device=device) * 255)

    def __call__(self, images: Images) -> torch.Tensor:
        """Shape (n, height, width, channels) uint8 to (n, 3, height, width) float."""
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self._device, non_blocking=True)
        count, height, width, channels = pixels.shape
        # Whole rows at a time, in place: a fifth of the time that the three channels apart would take.
        rows = pixels.view(count, height, width * channels).float()
        rows.sub_(self._mean.repeat(width)).mul_(self._scale.repeat(width))
        scaled = rows.view(count, height, width, channels).permute(0, 3, 1, 2)
        return scaled.expand(-1, 3, -1, -1).contiguous(memory_format=self._layout)
