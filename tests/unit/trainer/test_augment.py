import numpy as np

from trainer.augment import crop_and_flip

PAD = 2


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 255, (count, 9, 7, 1), dtype=np.uint8)


def test_an_image_depends_on_its_seed_epoch_and_id_only():
    batch, ids = images(8), np.arange(100, 108)

    together = crop_and_flip(batch, 1, 2, ids, PAD)
    alone = np.concatenate([crop_and_flip(batch[[i]], 1, 2, ids[[i]], PAD) for i in range(8)])

    assert np.array_equal(together, alone), "which worker trains a sample must not change it"
    assert not np.array_equal(together, crop_and_flip(batch, 1, 3, ids, PAD))
    assert not np.array_equal(together, crop_and_flip(batch, 2, 2, ids, PAD))


def test_an_image_is_only_shifted_and_mirrored():
    batch, ids = images(64), np.arange(64)

    for before, after in zip(batch, crop_and_flip(batch, 5, 0, ids, PAD), strict=True):
        padded = np.pad(before, ((PAD, PAD), (PAD, PAD), (0, 0)))
        crops = [
            padded[down : down + 9, right : right + 7]
            for down in range(2 * PAD + 1)
            for right in range(2 * PAD + 1)
        ]
        assert any(
            np.array_equal(after, crop) or np.array_equal(after, crop[:, ::-1]) for crop in crops
        )


def test_about_half_of_the_images_are_mirrored():
    line = np.zeros((2000, 9, 9, 1), np.uint8)
    line[:, :, 0] = 255  # a mark on the left

    right = crop_and_flip(line, 3, 0, np.arange(2000), 0)[:, :, 5:].any((1, 2, 3)).mean()

    assert 0.25 < right < 0.65
