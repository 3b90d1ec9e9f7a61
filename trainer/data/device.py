"""Conversion of image bytes to model input. A separate module, because the others do not import torch."""

import numpy as np
import torch

from trainer.augment import Images
from trainer.data.dataset import Dataset


class InputConversion:
    """Conversion of uint8 images to model input, on the model's device.

    Images have 1 or 3 channels; a gray channel is repeated, because every model has three input channels.
    """

    def __init__(self, dataset: Dataset, device: torch.device, layout: torch.memory_format) -> None:
        self._device, self._layout = device, layout
        self._mean = torch.tensor(dataset.mean, device=device) * 255
        self._scale = 1 / (torch.tensor(dataset.deviation, device=device) * 255)

    def __call__(self, images: Images) -> torch.Tensor:
        """Convert uint8 of shape (n, height, width, channels) to float of shape (n, 3, height, width)."""
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self._device, non_blocking=True)
        count, height, width, channels = pixels.shape
        # Whole rows at a time, in place: a fifth of the time that separate channels would take.
        rows = pixels.view(count, height, width * channels).float()
        rows.sub_(self._mean.repeat(width)).mul_(self._scale.repeat(width))
        scaled = rows.view(count, height, width, channels).permute(0, 3, 1, 2)
        return scaled.expand(-1, 3, -1, -1).contiguous(memory_format=self._layout)
