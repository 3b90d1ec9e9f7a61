"""`everstep node ...`, without machines."""

from typer.testing import CliRunner

from everstep.cli.app import build_app


def test_the_old_name_of_reconnect_is_refused_with_the_new_name() -> None:
    result = CliRunner().invoke(build_app(), ["node", "mend", "gpu-0"])

    assert result.exit_code == 2
    assert "reconnect" in result.output
