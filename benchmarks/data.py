"""Measure images per second from JPEG files to a normalized batch, on one core, against PIL and torchvision.

    python3 -m benchmarks.data                 # a table
    python3 -m benchmarks.data --json          # the same as JSON
    taskset -c 3 python3 -m benchmarks.data    # on a selected core

The images are generated: 500x375, overlapping surfaces of all sizes with edges, shades and grain,
encoded to about 100 KB. In every round each method reads the same images with new crops. The methods
take turns, so that other load on the machine affects all of them. All return batches
of 64 images of 224x224 pixels, randomly cropped and mirrored, and scaled; all but `... uint8` normalize them to floats.

    reference   files; PIL, torchvision.transforms.v2: RandomResizedCrop, flip, to float, Normalize
    files       files; everstep: OpenCV, the same crops, derived from (seed, epoch, id)
    shards      shards with 256 pixels on the short side, made by `trainer.prepare`

`... uint8` ends with the bytes that are copied to a GPU, which normalizes them. PSNR compares our pixels
with PIL's for the same crop (antialiased, bilinear); shards are compared with crops of the original
image, so their second compression counts.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from PIL.ImageFilter import GaussianBlur
from torchvision.transforms import v2

from benchmarks.progress import track
from everstep.progress import Silent
from trainer.augment import Crop, center_crop, random_crop, random_words
from trainer.data import load
from trainer.data.convert import convert
from trainer.data.dataset import Dataset
from trainer.data.device import InputConversion
from trainer.data.folder import open_folder
from trainer.data.images import DEVIATION, MEAN
from trainer.data.shard import Resizing

SIZE, BATCH, SEED = 224, 64, 7
WIDTH, HEIGHT = 500, 375
LEAVES, MIN_RADIUS, MAX_RADIUS = 400, 6, 200
SHARD_IMAGE = (341, 256)  # size of an image in a shard, pixels


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        average = make_images(folder / "photographs", options.images)
        convert(folder / "photographs", folder / "shards", Resizing(), 1, Silent())
        results = {
            "images": {
                "count": options.images,
                "size": [WIDTH, HEIGHT],
                "kilobytes": round(average / 1e3, 1),
            },
            "rounds": options.rounds,
            "images_per_second": throughput(folder, options.rounds),
            "psnr_decibel": {
                name: quality(
                    folder / "photographs", load("imagefolder", folder / name, "train", SIZE), *size
                )
                for name, size in (("photographs", (WIDTH, HEIGHT)), ("shards", SHARD_IMAGE))
            },
        }
    print(json.dumps(results, indent=1) if options.json else table(results))


def make_images(folder: Path, count: int) -> float:
    """Write JPEGs of two classes in both splits; return their mean size in bytes."""
    rng = np.random.default_rng(0)
    sizes = []
    for split, number_of_files in (("train", count), ("test", 2)):
        for number in range(number_of_files):
            path = folder / split / f"class-{number % 2}" / f"{number:05d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            render(rng).save(path, quality=95)
            sizes.append(path.stat().st_size)
    return statistics.fmean(sizes)


def render(rng: np.random.Generator) -> Image.Image:
    """Return one image from the dead leaves model of photographs: discs that cover each other.

    Their radii follow a power law, so that edges have all sizes; each disc has its own brightness, gradient
    and roughness. The lens blurs a little, the sensor adds grain.
    """
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    image = np.full((HEIGHT, WIDTH, 3), 110, np.float32)
    roughness = rng.normal(scale=20, size=(HEIGHT, WIDTH)).astype(np.float32)
    for _ in range(LEAVES):
        radius = MIN_RADIUS / np.sqrt(rng.uniform((MIN_RADIUS / MAX_RADIUS) ** 2, 1))
        center_x, center_y = rng.uniform(0, WIDTH), rng.uniform(0, HEIGHT)
        box = (
            slice(max(0, int(center_y - radius)), int(center_y + radius) + 1),
            slice(max(0, int(center_x - radius)), int(center_x + radius) + 1),
        )
        offset_x, offset_y = columns[box] - center_x, rows[box] - center_y
        brightness = rng.uniform(20, 235) + rng.normal(scale=12, size=3)
        slope = rng.normal(scale=0.25, size=2)
        shade = slope[0] * offset_x + slope[1] * offset_y + rng.uniform() * roughness[box]
        in_disc = np.hypot(offset_x, offset_y) < radius
        image[box][in_disc] = (brightness + shade[..., None])[in_disc]
    blurred_image = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).filter(
        GaussianBlur(0.7)
    )
    grain = rng.normal(scale=6, size=(HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(np.asarray(blurred_image) + grain, 0, 255).astype(np.uint8))


def throughput(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return images per second of each method: median, minimum, maximum, ratio of medians to the reference."""
    methods = make_methods(folder)
    speeds: dict[str, list[float]] = {name: [] for name in methods}
    for epoch in track(range(rounds + 1), "rounds", rounds + 1):
        for name, read in methods.items():
            started_at = time.process_time()
            images = read(epoch)
            if epoch:  # the first round warms up
                speeds[name].append(images / (time.process_time() - started_at))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return {
        name: {
            "median": round(medians[name]),
            "min": round(min(values)),
            "max": round(max(values)),
            "ratio": round(medians[name] / medians["reference"], 2),
        }
        for name, values in speeds.items()
    }


def make_methods(folder: Path) -> dict[str, Callable[[int], int]]:
    """Return the methods: each reads all images once for an epoch and returns their number."""
    files = load("imagefolder", folder / "photographs", "train", SIZE)
    shards = load("imagefolder", folder / "shards", "train", SIZE)
    prepare = InputConversion(files, torch.device("cpu"), torch.channels_last)

    def dataset_reader(
        dataset: Dataset, finish: Callable[[np.ndarray], object]
    ) -> Callable[[int], int]:
        def read(epoch: int) -> int:
            for first in range(0, len(dataset), BATCH):
                ids = np.arange(first, min(first + BATCH, len(dataset)))
                finish(dataset.train_batch(ids, SEED, epoch)[0])
            return len(dataset)

        return read

    return {
        "reference": reference(sorted((folder / "photographs" / "train").rglob("*.jpg"))),
        "files": dataset_reader(files, prepare),
        "shards": dataset_reader(shards, prepare),
        "files uint8": dataset_reader(files, lambda images: images),
        "shards uint8": dataset_reader(shards, lambda images: images),
    }


def reference(paths: list[Path]) -> Callable[[int], int]:
    """Return the usual pipeline of PIL and torchvision."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )

    def read(epoch: int) -> int:
        torch.manual_seed(epoch)
        for first in range(0, len(paths), BATCH):
            images = []
            for path in paths[first : first + BATCH]:
                with Image.open(path) as image:
                    images.append(transform(image.convert("RGB")))
            torch.stack(images)
        return len(paths)

    return read


def quality(files: Path, dataset: Dataset, width: int, height: int) -> dict[str, float]:
    """Return the median and the minimum PSNR of our pixels against PIL's for the same crops.

    Args:
        files: folder of the original images.
        dataset: the data set made from them.
        width: width of its images, pixels.
        height: height of its images, pixels.
    """
    source = open_folder(files, "train")
    ids = np.arange(len(dataset))
    crops = [
        random_crop(width, height, random_word)
        for random_word in random_words(SEED, 0, ids).tolist()
    ]
    kinds = {
        "training": (dataset.train_batch(ids, SEED, 0)[0], crops),
        "evaluation": (dataset.test_batch(ids)[0], [center_crop(width, height)] * len(ids)),
    }
    psnr_by_kind = {}
    for kind, (images, image_crops) in kinds.items():
        values = [
            psnr(image, pil_pixels(Path(source.name(number)), crop, width, height))
            for number, (image, crop) in enumerate(zip(images, image_crops, strict=True))
        ]
        psnr_by_kind[f"{kind}_median"] = round(statistics.median(values), 1)
        psnr_by_kind[f"{kind}_min"] = round(min(values), 1)
    return psnr_by_kind


def pil_pixels(path: Path, crop: Crop, width: int, height: int) -> np.ndarray:
    """Return PIL's pixels of a crop of a width x height image, scaled as torchvision does."""
    scale_x, scale_y = WIDTH / width, HEIGHT / height
    box = (
        crop.left * scale_x,
        crop.top * scale_y,
        (crop.left + crop.width) * scale_x,
        (crop.top + crop.height) * scale_y,
    )
    with Image.open(path) as image:
        scaled_image = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
    pixels = np.asarray(scaled_image)
    return pixels[:, ::-1] if crop.mirrored else pixels


def psnr(pixels: np.ndarray, reference: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in decibels."""
    error = np.mean((pixels.astype(np.float64) - reference) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def table(results: dict[str, Any]) -> str:
    """Return the figures as a text table."""
    lines = [f"{results['images']}, {results['rounds']} rounds, one core, per second of CPU time"]
    for name, method in results["images_per_second"].items():
        spread = f"{method['min']} to {method['max']}"
        lines.append(
            f"  {name:<14}{method['median']:>6} images/s  ({spread})  {method['ratio']:.2f} x reference"
        )
    for name, values in results["psnr_decibel"].items():
        lines.append(f"  PSNR against PIL, {name}: {values} dB")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
