"""Train a small network on MNIST: the loop of plain.py, made elastic."""

import argparse
import fcntl
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision import datasets, transforms

from everstep import elastic


def main() -> None:
    """Train, and print the accuracy after each epoch."""
    options = parse()
    torch.manual_seed(0)
    to_tensor = transforms.ToTensor()
    with (options.run / "download.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker downloads the data, the others wait
        train_set = datasets.MNIST(options.data, download=True, transform=to_tensor)
    test_set = datasets.MNIST(options.data, train=False, transform=to_tensor)
    device = elastic.choose_device()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    run = elastic.Run(
        model,
        optimizer,
        dataset=train_set,
        global_batch=options.global_batch,
        epochs=options.epochs,
        checkpoint=options.run,
    )

    @run.each_epoch
    def evaluate(epochs: int) -> None:
        scores = run.evaluate(test_set, lambda x, y: {"accuracy": model(x).argmax(1) == y})
        if run.leads:
            print(f"epoch {epochs}: accuracy {scores['accuracy']:.4f}")

    for batch in run:
        for images, labels in batch.microbatches():
            loss = cross_entropy(model(images), labels)
            (loss * batch.weight(images)).backward()
        batch.step()
    if run.leads:
        torch.save(model.state_dict(), options.run / "model.pt")


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder for the data set")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of the result")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=256)
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
