"""Settings that the CLI passes to the twin."""

import shlex
from pathlib import Path

import pytest
from cloudtwin.images import recipes

from everstep.cli.images import OPTIONS, RECIPES
from everstep.cli.twin_settings import configure_twin, down_command, gpu_machine, system_machine
from tests.everstep.cli.projects import shipped_stack


def test_everstep_variables_set_variables_of_the_twin() -> None:
    environment = {
        "HOME": "/home/me",
        "EVERSTEP_STATE": "/state",
        "EVERSTEP_TWIN": "mine",
        "CLOUDTWIN_STATE": "/inherited",
    }

    configure_twin(environment)

    assert environment["CLOUDTWIN_STATE"] == "/state", (
        "the variable of Everstep takes precedence over an inherited one"
    )
    assert environment["CLOUDTWIN_NAME"] == "mine"
    assert environment["CLOUDTWIN_CACHE"] == "/home/me/.cache/everstep"


def test_caches_and_states_stay_in_folders_named_everstep() -> None:
    environment = {"HOME": "/home/me", "XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s"}

    configure_twin(environment)

    assert environment["CLOUDTWIN_CACHE"] == "/c/everstep", "existing builds must be found"
    assert environment["CLOUDTWIN_STATE"] == "/s/everstep"


def test_machines_have_the_label_of_their_pool_and_gpu_machines_the_spot_taint() -> None:
    system, gpu = system_machine("system-0"), gpu_machine("gpu-0", 2)

    assert system.labels == {"everstep.dev/pool": "system"}
    assert not system.taints
    assert (gpu.gpus, gpu.labels) == (2, {"everstep.dev/pool": "gpu-spot"})
    assert [(taint.key, taint.value, taint.effect) for taint in gpu.taints] == [
        ("everstep.dev/spot", "true", "NoSchedule")
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_image_has_its_sources_and_its_reference(recipe: recipes.Recipe) -> None:
    assert recipes.context_files(recipe)
    assert recipe.reference == f"localhost/everstep/{recipe.name}:local"


def test_machines_share_the_folder_of_the_local_stack() -> None:
    config = shipped_stack("local")["config"]

    assert str(OPTIONS.shared_mount) == config["everstep:storage"]["path"]


def test_the_fix_for_a_leftover_twin_is_everstep_down() -> None:
    command = down_command(Path("/state/old"))

    assert command == "EVERSTEP_STATE=/state EVERSTEP_TWIN=old everstep down"


def test_a_command_for_a_folder_with_spaces_can_be_run_in_a_shell() -> None:
    command = down_command(Path("/my state/old"))

    assert shlex.split(command)[:2] == ["EVERSTEP_STATE=/my state", "EVERSTEP_TWIN=old"]
