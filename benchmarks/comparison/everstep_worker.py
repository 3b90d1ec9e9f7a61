"""A worker of Everstep: the loop of docs/elastic-api.md, with a journal."""

import os
from pathlib import Path

from benchmarks.comparison.workload import (
    GLOBAL_BATCH,
    SAMPLES,
    SAVE_STEPS,
    StepJournal,
    build_model,
    build_optimizer,
    loss_of,
)
from everstep import elastic


def main() -> None:
    """Train until killed."""
    model = build_model()
    run = elastic.Run(
        model,
        build_optimizer(model),
        dataset_size=SAMPLES,
        global_batch=GLOBAL_BATCH,
        epochs=10_000,
        checkpoint=Path(os.environ["COMPARISON_FOLDER"]) / "run",
        checkpoint_steps=SAVE_STEPS,
    )
    journal = StepJournal.of_this_node()
    # Step -> samples: a survivor adds the samples of lost workers.
    step_samples: dict[int, set[int]] = {}
    for batch in run:
        journal.begin()
        for indices in batch.microbatches():
            (loss_of(model, indices) * batch.weight(indices)).backward()  # type: ignore[no-untyped-call]
        if batch.is_warm_up:
            batch.step()
            continue
        indices = {batch.epoch * SAMPLES + index for index in batch.indices.tolist()}
        step_samples = {batch.number: step_samples.get(batch.number, set()) | indices}
        journal.record_computed(batch.number, run.world_size, sorted(step_samples[batch.number]))
        if batch.step():
            journal.record_committed()


if __name__ == "__main__":
    main()
