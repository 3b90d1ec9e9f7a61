"""Train a small GPT-2 from random weights to add numbers, elastically.

    everstep launch --nproc-per-node 2 examples/transformer/train.py

It runs on CPUs in a minute. Each sample is a line such as "27+58=085"; the loss counts the digits of the
sum only. The text is generated, so nothing is downloaded.
"""

import argparse
import os
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

from everstep import elastic

VOCABULARY = "0123456789+="
LENGTH = len("27+58=085")
SUM_DIGITS = 3  # at the end of a line


def main() -> None:
    """Train, and print the share of correct digits after each epoch."""
    options = parse()
    torch.manual_seed(0)
    numbers = torch.randperm(100 * 100, generator=torch.Generator().manual_seed(0))
    train_set, test_set = lines(numbers[: options.samples]), lines(numbers[-500:])
    device = elastic.choose_device()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(VOCABULARY),
            n_positions=LENGTH,
            n_embd=options.width,
            n_layer=options.layers,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20))

    run = elastic.Run(
        model,
        optimizer,
        dataset=train_set,
        global_batch=options.global_batch,
        epochs=options.epochs,
        checkpoint=options.run,
        scheduler=schedule,
    )

    @run.each_epoch
    def evaluate(epochs: int) -> None:
        scores = run.evaluate(test_set, lambda line: {"digits": correct_digits(model, line)})
        run.metrics.update(scores)
        if run.leads:
            print(f"epoch {epochs}: {scores['digits']:.1%} of the digits are correct", flush=True)

    for batch in run:
        for (line,) in batch.microbatches():
            logits = model(line[:, :-1]).logits[:, -SUM_DIGITS:]
            loss = cross_entropy(logits.flatten(0, 1), line[:, -SUM_DIGITS:].flatten())
            batch.backward(loss)
        batch.step()


def lines(pairs: torch.Tensor) -> TensorDataset:
    """Return lines of text as tokens, shape (pairs, LENGTH); the pair 2758 is the line 27+58=085."""
    texts = [
        f"{left:02}+{right:02}={left + right:03}"
        for left, right in (divmod(pair, 100) for pair in pairs.tolist())
    ]
    return TensorDataset(
        torch.tensor([[VOCABULARY.index(character) for character in text] for text in texts])
    )


def correct_digits(model: GPT2LMHeadModel, line: torch.Tensor) -> torch.Tensor:
    """Return the share of correct digits of each sum, each predicted from the digits before it."""
    predictions = model(line[:, :-1]).logits[:, -SUM_DIGITS:].argmax(-1)
    return (predictions == line[:, -SUM_DIGITS:]).float().mean(1)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path(os.environ.get("EVERSTEP_RUN", "runs/transformer"))
    parser.add_argument("--run", type=Path, default=folder, help="folder of the checkpoints")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=9000, help="lines to train on, below 9500")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
