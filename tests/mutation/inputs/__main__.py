"""Measure which wrong inputs of the cloud stacks the twin accepts.

    python -m tests.mutation.inputs [--cloud aws|azure-native] [--show]

The stacks run against the twin's providers without machines; each input of each type is then made wrong in many
ways. The oracles are botocore's service models for AWS, and Pulumi's SDK with the models of Azure's SDK for Azure.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutation.inputs.declared import STACKS, declare_resources
from tests.mutation.inputs.run import (
    MAX_ACCEPTED_SHARE,
    Tally,
    judge_all,
    name_of,
    table,
    total,
    variants,
)
from tests.mutation.inputs.verdict import judge

MAX_REASON_CHARACTERS = 200


def main() -> int:
    """Print the tables; return 1 if too many variants are accepted or the twin fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cloud", choices=sorted(STACKS), help="default: both")
    parser.add_argument(
        "--show", action="store_true", help="list the accepted variants and the failures"
    )
    options = parser.parse_args()
    return max(
        _measure(cloud, show=options.show)
        for cloud in ([options.cloud] if options.cloud else STACKS)
    )


def _measure(cloud: str, *, show: bool) -> int:
    print(f"{cloud}: declaring {', '.join(STACKS[cloud])}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="everstep-inputs-") as folder, judge() as judge_client:
        resources = list(declare_resources(cloud, Path(folder)))
        print(
            f"{cloud}: changing the inputs of {len(resources)} resources",
            file=sys.stderr,
            flush=True,
        )
        tallies = judge_all(variants(resources), judge_client)
    print(table(tallies))
    if show:
        _show(tallies)
    all_tallies = total(tallies)
    return int(
        len(all_tallies.accepted_variants) > MAX_ACCEPTED_SHARE * all_tallies.count
        or bool(all_tallies.failures)
    )


def _show(tallies: dict[str, Tally]) -> None:
    all_tallies = total(tallies)
    for accepted in all_tallies.accepted_variants:
        reason = " ".join(accepted.reason.split())
        print(f"accepted {name_of(accepted.variant)}: {reason[:MAX_REASON_CHARACTERS]}")
    for variant, trace in all_tallies.failures:
        print(f"failed {name_of(variant)}\n{trace}")


if __name__ == "__main__":
    sys.exit(main())
