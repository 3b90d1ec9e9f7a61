"""Causes in the messages of failed updates."""

from everstep.cli.engine.failures import images_not_pulled


def test_missing_images_are_parsed_from_kubelet_messages() -> None:
    message = (
        'Deployment a got stuck: ErrImagePull: failed to pull and unpack image "example/b:1": no\n'
        'pod c: ImagePullBackOff: Back-off pulling image \\"example/b:1\\"\n'
        'pod d: Successfully pulled image "example/d:1"'
    )

    assert images_not_pulled(message) == ["example/b:1"]
