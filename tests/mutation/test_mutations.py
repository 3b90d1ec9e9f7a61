"""The list of deliberate mistakes fits the code; `tests.mutation.run` injects them."""

import ast
from pathlib import Path

import pytest

from tests.mutation.elastic_mutations import ELASTIC_MUTATIONS
from tests.mutation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "mutation", [*MUTATIONS, *ELASTIC_MUTATIONS], ids=lambda mutation: mutation.description
)
def test_a_mistake_changes_its_file_and_leaves_valid_python(mutation: Mutation) -> None:
    source = mutation.applied_to((ROOT / mutation.file).read_text())

    ast.parse(source)


@pytest.mark.parametrize("mutation", ELASTIC_MUTATIONS, ids=lambda mutation: mutation.description)
def test_the_tests_of_a_mistake_exist(mutation: Mutation) -> None:
    assert all((ROOT / path).exists() for path in mutation.tests)
