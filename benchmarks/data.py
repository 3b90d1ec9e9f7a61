"""Images a second from JPEG files to a normalised batch, on one core, against PIL and torchvision.

    python3 -m benchmarks.data                 # a table
    python3 -m benchmarks.data --json          # the same for a program
    taskset -c 3 python3 -m benchmarks.data    # on a core of your choice

The pictures are made here: 500x375, surfaces of all sizes that hide each other, with edges, shades and
grain, encoded to about 100 KB. Every round each way reads the same
pictures with new crops, the ways one after the other, so that whatever else the machine does meets
them all. All give 3x224x224 float batches of 64: random crop, mirror, scale, normalise.

    reference   files; PIL, torchvision.transforms.v2: RandomResizedCrop, flip, to float, Normalize
    files       files; everstep: OpenCV, the same crops drawn from (seed, epoch, id)
    shards      shards with 256 pixels on the short side, made by `trainer.prepare`

`... uint8` is the same up to the bytes that go to a GPU, which normalises by itself. PSNR compares our
pixels with PIL's of the same crop (antialiased, bilinear); shards are compared with crops of the whole
picture, so that their second compression counts.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.ImageFilter import GaussianBlur
from torchvision.transforms import v2

from benchmarks.progress import shown
from everstep.progress import Silent
from trainer.augment import Crop, chances, middle_crop, random_crop
from trainer.data import load
from trainer.data.convert import convert
from trainer.data.dataset import Dataset
from trainer.data.device import Prepare
from trainer.data.folder import open_folder
from trainer.data.pictures import DEVIATION, MEAN
from trainer.data.shard import Resizing

SIZE, BATCH, SEED = 224, 64, 7
WIDTH, HEIGHT = 500, 375
LEAVES, LEAST_RADIUS, MOST_RADIUS = 400, 6, 200
SHARD_PICTURE = (341, 256)  # what they become


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        average = make_pictures(folder / "photographs", options.pictures)
        convert(folder / "photographs", folder / "shards", Resizing(), 1, Silent())
        found = {
            "pictures": {
                "count": options.pictures,
                "size": [WIDTH, HEIGHT],
                "kilobytes": round(average / 1e3, 1),
            },
            "rounds": options.rounds,
            "images_per_second": throughput(folder, options.rounds),
            "psnr_decibel": {
                name: quality(
                    folder / "photographs", load("imagefolder", folder / name, "train", SIZE), *size
                )
                for name, size in (("photographs", (WIDTH, HEIGHT)), ("shards", SHARD_PICTURE))
            },
        }
    print(json.dumps(found, indent=1) if options.json else table(found))


def make_pictures(folder: Path, count: int) -> float:
    """JPEGs of two classes in both parts; how many bytes one has on average."""
    numbers = np.random.default_rng(0)
    sizes = []
    for part, some in (("train", count), ("test", 2)):
        for number in range(some):
            path = folder / part / f"class-{number % 2}" / f"{number:05d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(numbers).save(path, quality=95)
            sizes.append(path.stat().st_size)
    return statistics.fmean(sizes)


def picture(numbers: np.random.Generator) -> Image.Image:
    """One picture: leaves that lie on each other, as the usual model of photographs has it.

    Their radii follow a power law, so that edges come at all sizes; each has a light, a slope of it and
    a roughness of its own. The lens blurs a little, the sensor adds grain.
    """
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    image = np.full((HEIGHT, WIDTH, 3), 110, np.float32)
    rough = numbers.normal(scale=20, size=(HEIGHT, WIDTH)).astype(np.float32)
    for _ in range(LEAVES):
        radius = LEAST_RADIUS / np.sqrt(numbers.uniform((LEAST_RADIUS / MOST_RADIUS) ** 2, 1))
        across, down = numbers.uniform(0, WIDTH), numbers.uniform(0, HEIGHT)
        box = (
            slice(max(0, int(down - radius)), int(down + radius) + 1),
            slice(max(0, int(across - radius)), int(across + radius) + 1),
        )
        right, below = columns[box] - across, rows[box] - down
        light = numbers.uniform(20, 235) + numbers.normal(scale=12, size=3)
        slope = numbers.normal(scale=0.25, size=2)
        shade = slope[0] * right + slope[1] * below + numbers.uniform() * rough[box]
        inside = np.hypot(right, below) < radius
        image[box][inside] = (light + shade[..., None])[inside]
    blurred = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).filter(GaussianBlur(0.7))
    grain = numbers.normal(scale=6, size=(HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(np.asarray(blurred) + grain, 0, 255).astype(np.uint8))


def throughput(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Images a second of each way: median, least, most, and the ratio of medians to the reference."""
    ways = ways_of(folder)
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for epoch in shown(range(rounds + 1), "rounds", rounds + 1):
        for name, read in ways.items():
            began = time.process_time()
            images = read(epoch)
            if epoch:  # the first round warms up
                speeds[name].append(images / (time.process_time() - began))
    middle = {name: statistics.median(values) for name, values in speeds.items()}
    return {
        name: {
            "median": round(middle[name]),
            "least": round(min(values)),
            "most": round(max(values)),
            "ratio": round(middle[name] / middle["reference"], 2),
        }
        for name, values in speeds.items()
    }


def ways_of(folder: Path) -> dict[str, Callable[[int], int]]:
    """Each reads all pictures once for an epoch's number and says how many they were."""
    files = load("imagefolder", folder / "photographs", "train", SIZE)
    shards = load("imagefolder", folder / "shards", "train", SIZE)
    prepare = Prepare(files, torch.device("cpu"), torch.channels_last)

    def ours(dataset: Dataset, finish: Callable[[np.ndarray], object]) -> Callable[[int], int]:
        def read(epoch: int) -> int:
            for first in range(0, len(dataset), BATCH):
                ids = np.arange(first, min(first + BATCH, len(dataset)))
                finish(dataset.train_batch(ids, SEED, epoch)[0])
            return len(dataset)

        return read

    return {
        "reference": reference(sorted((folder / "photographs" / "train").rglob("*.jpg"))),
        "files": ours(files, prepare),
        "shards": ours(shards, prepare),
        "files uint8": ours(files, lambda images: images),
        "shards uint8": ours(shards, lambda images: images),
    }


def reference(paths: list[Path]) -> Callable[[int], int]:
    """The usual pipeline."""
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
    """PSNR of our pixels against PIL's of the same part of the file: median over pictures, and the least.

    Args:
        files: the photographs.
        dataset: what was made of them.
        width: of its pictures, pixels.
        height: likewise.
    """
    source = open_folder(files, "train")
    ids = np.arange(len(dataset))
    crops = [random_crop(width, height, chance) for chance in chances(SEED, 0, ids).tolist()]
    kinds = {
        "training": (dataset.train_batch(ids, SEED, 0)[0], crops),
        "evaluation": (dataset.test_batch(ids)[0], [middle_crop(width, height)] * len(ids)),
    }
    found = {}
    for kind, (images, parts) in kinds.items():
        values = [
            psnr(image, by_pil(Path(source.name(number)), part, width, height))
            for number, (image, part) in enumerate(zip(images, parts, strict=True))
        ]
        found[f"{kind}_median"] = round(statistics.median(values), 1)
        found[f"{kind}_least"] = round(min(values), 1)
    return found


def by_pil(path: Path, crop: Crop, width: int, height: int) -> np.ndarray:
    """PIL's pixels of a crop of a picture that was given as width x height, scaled as torchvision does."""
    across, down = WIDTH / width, HEIGHT / height
    box = (
        crop.left * across,
        crop.top * down,
        (crop.left + crop.width) * across,
        (crop.top + crop.height) * down,
    )
    with Image.open(path) as image:
        scaled = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
    pixels = np.asarray(scaled)
    return pixels[:, ::-1] if crop.mirrored else pixels


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Peak signal-to-noise ratio in decibel."""
    error = np.mean((ours.astype(np.float64) - theirs) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def table(found: dict) -> str:  # type: ignore[type-arg] # JSON
    """As text."""
    lines = [f"{found['pictures']}, {found['rounds']} rounds, one core, seconds of processor time"]
    for name, way in found["images_per_second"].items():
        spread = f"{way['least']} to {way['most']}"
        lines.append(
            f"  {name:<14}{way['median']:>6} images/s  ({spread})  {way['ratio']:.2f} x reference"
        )
    for name, values in found["psnr_decibel"].items():
        lines.append(f"  PSNR against PIL, {name}: {values} dB")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
