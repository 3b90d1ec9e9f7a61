"""The limits of names that the operations of Azure's SDK state."""

from pathlib import Path

from cloudtwin.providers.azure import read_models


def operation(name: str, limits: str) -> str:
    return f'_SERIALIZER.url("{name}", {name}, "str", {limits})\n'


def test_a_name_has_all_the_limits_of_its_operations(tmp_path: Path) -> None:
    (tmp_path / "_operations.py").write_text(
        operation("account_name", 'max_length=24, min_length=3, pattern=r"^[a-z0-9]+$"')
        + operation("account_name", "max_length=30, min_length=1")
        + operation("manager_name", 'pattern=r"^[a-z]"')
        + operation("manager_name", 'pattern=r"^[a-z.]+$"')
        + operation("manager_name", 'pattern=r"^[a-z]"')
    )

    assert read_models._names(tmp_path) == {
        "account_name": {"max_length": 24, "min_length": 3, "pattern": "^[a-z0-9]+$"},
        "manager_name": {"pattern": "(?=^[a-z.]+$)^[a-z]"},
    }
