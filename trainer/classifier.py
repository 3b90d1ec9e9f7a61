"""An image classifier and its run: data, model, optimizer, and one training step."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from everstep.elastic import Batch, Run, RunHooks
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.data_order.sampler import Ids
from everstep.elastic.recovery.worker import Group
from everstep.elastic.training.options import CompletedRun
from everstep.elastic.training.program import version
from everstep.elastic.training.resume import DATA, TEST_DATA
from trainer import data, models
from trainer.augment import Images
from trainer.data import BatchRequest
from trainer.data.device import InputConversion
from trainer.run_folder import open_run, write_result_when_possible
from trainer.schedule import Schedule
from trainer.settings import Settings

MOMENTUM = 0.9
RUN_SETTINGS = (
    *("global_batch", "epochs", "seed", "max_steps", "mode", "shard_size", "nonfinite_loss"),
    *("compress", "overlap", "checkpoint_seconds", "checkpoint_steps", "keep_checkpoints"),
    *("accept_data", "accept_older_checkpoint"),
)
"""Settings that are passed to `everstep.elastic.Run` unchanged."""


@dataclass
class Classifier:
    """The data, the model and the run of one worker."""

    settings: Settings
    train_set: data.Dataset
    test_set: data.Dataset
    model: nn.Module
    precision: models.Precision
    convert_input: InputConversion
    schedule: Schedule
    run: Run

    def train(self, batch: Batch) -> None:
        """Take one step."""
        for group in self.run.optimizer.param_groups:
            group["lr"] = self.schedule.rate(batch.number - 1)
        with batch:
            for images, labels in batch.microbatches():
                # One small image has one value per channel in the last layers: no variance for batch normalization.
                self.model.train(len(labels) > 1)
                smoothing = self.settings.label_smoothing
                outputs = self.outputs(images)
                batch.backward(
                    nn.functional.cross_entropy(outputs, labels, label_smoothing=smoothing)
                )
            batch.step()

    def outputs(self, images: Images) -> torch.Tensor:
        """Return the model's outputs in float32, shape (n, classes)."""
        with self.precision.autocast(self.run.device):
            outputs: torch.Tensor = self.model(self.convert_input(images))
        return outputs.float()

    def evaluate(self, epochs: int) -> None:
        """Evaluate on the test set, and record the accuracy."""
        scores = self.run.evaluate(len(self.test_set), self._scores, self._prefetch)
        self.run.metrics["accuracy"] = scores["accuracy"]
        if self.run.leads:
            entry = {"step": self.run.step, "epoch": epochs, **scores, "images": len(self.test_set)}
            self.run.note("evaluation", **entry)

    def _scores(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        images, labels = self.test_set.test_batch(ids.numpy())
        outputs = self.outputs(images)
        expected_labels = torch.from_numpy(labels).to(self.run.device)
        return {
            "accuracy": outputs.argmax(1) == expected_labels,
            "loss": nn.functional.cross_entropy(outputs, expected_labels, reduction="none"),
        }

    def _prefetch(self, ids: Ids, following_ids: Ids) -> None:
        self.test_set.prefetch([BatchRequest(ids=ids), BatchRequest(ids=following_ids)])


def assemble(
    settings: Settings, group: Group, accounting: TimeAccount, device: torch.device
) -> Classifier:
    """Assemble data, model and optimizer, the same on every worker."""
    size, padding = settings.image_size, settings.crop_padding
    cache = _open_cache(settings)
    folder = cache.folder if cache else settings.data
    store = settings.data_store
    train_set = data.load(settings.dataset, folder, "train", size, padding, store)
    test_set = data.load(settings.dataset, folder, "test", size, store=store)
    train_set, test_set = data.read_ahead(
        train_set, test_set, settings.loader_workers, settings.global_batch
    )
    torch.manual_seed(settings.seed)
    precision = models.precision(settings.model, device, exact=settings.mode == "exact")
    model = models.build(settings.model, train_set.class_count)
    model = model.to(device, memory_format=precision.memory_format)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        models.parameter_groups(model, settings.weight_decay),
        lr=settings.learning_rate,
        momentum=MOMENTUM,
        nesterov=True,
    )
    run = Run(
        model,
        optimizer,
        dataset_size=len(train_set),
        checkpoint=settings.run,
        scaler=torch.amp.GradScaler(device.type, enabled=precision.needs_scaler),
        fingerprint={
            **settings.fingerprint,
            DATA: train_set.identity,
            TEST_DATA: test_set.identity,
        },
        identity=version(Path(__file__).parent),
        labels={"model": settings.model, "dataset": settings.dataset},
        hooks=_hooks(settings, train_set, device, cache),
        group=(group, accounting),
        **{name: getattr(settings, name) for name in RUN_SETTINGS},
    )
    run.metrics["accuracy"] = 0.0
    schedule = Schedule(settings.learning_rate, run.planned_steps, settings.warmup_fraction)
    convert_input = InputConversion(train_set, device, precision.memory_format)
    return Classifier(settings, train_set, test_set, model, precision, convert_input, schedule, run)


def _open_cache(settings: Settings) -> data.Cache | None:
    """Open the cache of the node if the data are in an object store."""
    if not settings.data_store:
        return None
    limits = data.CacheLimits(
        bytes=settings.data_cache_bytes, free_percent=settings.data_cache_free_percent
    )
    return data.open_cache(settings.data_store, settings.data, limits)


def _hooks(
    settings: Settings, train_set: data.Dataset, device: torch.device, cache: data.Cache | None
) -> RunHooks:
    def load(ids: Ids, epoch: int) -> Any:  # noqa: ANN401 - images and labels
        images, labels = train_set.train_batch(ids, settings.seed, epoch)
        return images, torch.from_numpy(labels).to(device)

    def prefetch(next_samples: list[tuple[int, Ids]]) -> None:
        requests = [BatchRequest(ids=i, seed=settings.seed, epoch=e) for e, i in next_samples]
        if cache:
            cache.prefetch([request.ids for request in requests])
        train_set.prefetch(requests)

    def open_folder() -> dict[str, float] | None:
        result = open_run(settings)
        return None if result is None else {"accuracy": float(result.get("accuracy", math.nan))}

    def completed(run: CompletedRun) -> None:
        summary = write_result_when_possible(
            settings, run.step, run.metrics["accuracy"], run.sha256()
        )
        entry = {name: summary[name] for name in ("accuracy", "seconds")}
        run.note("finish", step=run.step, **entry)

    return RunHooks(open=open_folder, completed=completed, prefetch=prefetch, load=load)
