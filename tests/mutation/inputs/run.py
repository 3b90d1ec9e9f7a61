"""Send the wrong variants of all declared inputs to the twin, and count the variants that it accepts."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from cloudtwin.providers.schema.store import SchemaStore

from tests.mutation.inputs import formats, requests, sdk, wrong_policies, wrong_values
from tests.mutation.inputs.declared import CLOUDS, DeclaredResource
from tests.mutation.inputs.verdict import ACCEPTED, AT_PREVIEW, AT_UP, FAILED, Judge
from tests.mutation.inputs.wrong_values import Mutation

SEED = 20261123
MAX_ACCEPTED_SHARE = 0.02
"""The twin may accept at most this share of the variants that the oracle refuses."""

TABLE_HEADER = (
    "| type | refused by the oracle | at preview | at up | accepted | failed |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Variant:
    """One wrong variant of a declared resource."""

    resource: DeclaredResource
    mutation: Mutation


@dataclass(frozen=True)
class AcceptedVariant:
    """A variant that the twin accepts, and why the oracle refuses it."""

    variant: Variant
    reason: str


@dataclass
class Tally:
    """Counts of one type of resource.

    Attributes:
        refusals: number of the variants that the oracle refuses, by the outcome on the twin.
        accepted_variants: variants that the twin accepts.
        failures: all variants on which the twin fails, with the traceback.
    """

    refusals: Counter[str] = field(default_factory=Counter)
    accepted_variants: list[AcceptedVariant] = field(default_factory=list)
    failures: list[tuple[Variant, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of the variants that the oracle refuses."""
        return sum(self.refusals.values())

    def add(self, other: "Tally") -> None:
        """Add the counts of another type."""
        self.refusals += other.refusals
        self.accepted_variants += other.accepted_variants
        self.failures += other.failures


def variants(resources: Iterable[DeclaredResource]) -> list[Variant]:
    """Return the wrong variants of resources; each mistake in an input of a type is made in one resource only.

    The SDK declares resources in no fixed order; sorted, the same seed gives the same variants.
    """
    previous_mutations: set[tuple[str, str]] = set()
    generator = random.Random(SEED)
    result: list[Variant] = []
    for resource in sorted(
        resources,
        key=lambda resource: (resource.stack, resource.key.urn),
    ):
        mutations = _mutations(resource, generator)
        new_mutations = [
            mutation
            for mutation in mutations
            if (resource.token, mutation.description) not in previous_mutations
        ]
        result += (Variant(resource, mutation) for mutation in new_mutations)
        previous_mutations |= {(resource.token, mutation.description) for mutation in new_mutations}
    return result


def _mutations(resource: DeclaredResource, generator: random.Random) -> Iterator[Mutation]:
    """Yield the wrong variants of one resource."""
    cloud = CLOUDS[resource.token.partition(":")[0]]
    schema = SchemaStore(cloud.name, cloud.types).load(resource.token)
    yield from wrong_values.mutations(resource.inputs, generator, has_tags="tags" in schema.inputs)
    yield from wrong_values.undeclared_mutations(resource.inputs, schema)
    name, kind = wrong_policies.DOCUMENTS.get(resource.token, ("", ""))
    for description, text in (
        wrong_policies.wrong_documents(resource.inputs[name], kind) if name else ()
    ):
        yield Mutation(f"{name}: {description}", resource.inputs, (name,), text, certain=True)


def reason_of(variant: Variant) -> str:
    """Return the reason why the service refuses a variant; empty if its models accept it."""
    resource, mutation = variant.resource, variant.mutation
    if mutation.certain:
        return mutation.description
    if not resource.token.startswith("aws:"):
        return next(sdk.reasons(resource.token, mutation.inputs), "")
    model_errors = requests.reasons(resource.token, mutation.inputs)
    # Only the provider reads an input of the SDK that is not a member of the request.
    models = (error for error in model_errors if not error.startswith("Unknown parameter"))
    return next(chain(models, formats.reasons(mutation.inputs)), "")


def judge_all(variants: Iterable[Variant], judge: Judge) -> dict[str, Tally]:
    """Return the counts of each type of resource."""
    tallies: dict[str, Tally] = {}
    for variant in variants:
        tally = tallies.setdefault(variant.resource.token, Tally())
        verdict = judge.verdict(variant.resource, variant.mutation.inputs)
        reason = reason_of(variant)
        if reason:
            tally.refusals[verdict.outcome] += 1
        if reason and verdict.outcome == ACCEPTED:
            tally.accepted_variants.append(AcceptedVariant(variant, reason))
        if verdict.outcome == FAILED:
            tally.failures.append((variant, verdict.message))
    return tallies


def name_of(variant: Variant) -> str:
    """Return the type and the mistake of a variant."""
    return f"{variant.resource.token.rpartition(':')[2]} {variant.mutation.description}"


def total(tallies: Mapping[str, Tally]) -> Tally:
    """Return the sum of all types."""
    sum_of_all = Tally()
    for tally in tallies.values():
        sum_of_all.add(tally)
    return sum_of_all


def table(tallies: Mapping[str, Tally]) -> str:
    """Return the counts as a table, a row for each type of resource."""
    sum_of_all = total(tallies)
    share = len(sum_of_all.accepted_variants) / max(1, sum_of_all.count)
    rows = [_row(token.rpartition(":")[2], tally) for token, tally in sorted(tallies.items())]
    return "\n".join([TABLE_HEADER, *rows, _row(f"all ({share:.1%} accepted)", sum_of_all)])


def _row(name: str, tally: Tally) -> str:
    at_preview, at_up = tally.refusals[AT_PREVIEW], tally.refusals[AT_UP]
    counts = (tally.count, at_preview, at_up, len(tally.accepted_variants), len(tally.failures))
    return f"| {name} | {' | '.join(map(str, counts))} |"
