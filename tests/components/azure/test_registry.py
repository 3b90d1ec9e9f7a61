"""The image registry on Azure."""

import base64

import yaml

from tests.components.azure.aks_stack import all_features_stack


def test_the_registry_has_no_shared_password() -> None:
    inputs = all_features_stack().one("Registry").inputs

    assert inputs["adminUserEnabled"] is False
    assert inputs["anonymousPullEnabled"] is False
    assert inputs["registryName"] == "visionimages"


def test_old_images_are_removed_weekly_and_the_newest_are_kept() -> None:
    inputs = all_features_stack().one("Task").inputs
    (timer,) = inputs["trigger"]["timerTriggers"]
    task = yaml.safe_load(base64.b64decode(inputs["step"]["encodedTaskContent"]))
    (step,) = task["steps"]

    assert (timer["schedule"], timer["status"]) == ("0 3 * * Sun", "Enabled")
    assert "--keep 5" in step["cmd"]
    assert "--filter '.*:.*'" in step["cmd"]
    assert step["disableWorkingDirectoryOverride"] is True
