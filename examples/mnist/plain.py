"""Train a small network on MNIST: a plain PyTorch loop, the start of docs/elastic-script.md."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main() -> None:
    """Train, and print the accuracy after each epoch."""
    options = parse()
    torch.manual_seed(0)
    to_tensor = transforms.ToTensor()
    train_set = datasets.MNIST(options.data, download=True, transform=to_tensor)
    test_set = datasets.MNIST(options.data, train=False, transform=to_tensor)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(options.epochs):
        for images, labels in DataLoader(train_set, options.global_batch, shuffle=True):
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct = 0
        with torch.no_grad():
            for images, labels in DataLoader(test_set, 1000):
                correct += int((model(images.to(device)).argmax(1).cpu() == labels).sum())
        print(f"epoch {epoch + 1}: accuracy {correct / len(test_set):.4f}")
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
